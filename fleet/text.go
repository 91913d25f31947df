package fleet

import (
	"errors"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// kindText are the Kinds that a scenario may have, as text.
var kindText = [...]string{
	transport.Unknown: "", transport.Network: "network", transport.Timeout: "timeout",
	transport.Unavailable: "unavailable", transport.Throttled: "throttled", transport.Quota: "quota",
	transport.ClockUnset: "clock unset",
}

// tierText are the names of the tiers.
var tierText = [tiers]string{TierS1: limits[TierS1].name, TierS2: limits[TierS2].name, TierS3: limits[TierS3].name}

// MarshalText returns the name of the effect.
func (e Effect) MarshalText() ([]byte, error) { return textOf(effectText[:], int(e), "effect") }

// UnmarshalText takes the name of an effect, in capital or small letters.
func (e *Effect) UnmarshalText(text []byte) error {
	n, err := indexOf(effectText[:], text, "effect")
	*e = Effect(n)
	return err
}

// MarshalText returns the name of the tier.
func (t Tier) MarshalText() ([]byte, error) { return textOf(tierText[:], int(t), "tier") }

// UnmarshalText takes the name of a tier, in capital or small letters.
func (t *Tier) UnmarshalText(text []byte) error {
	n, err := indexOf(tierText[:], text, "tier")
	*t = Tier(n)
	return err
}

func textOf(texts []string, n int, what string) ([]byte, error) {
	if n >= len(texts) {
		return nil, invalid("there is no text for " + what + " " + strconv.Itoa(n) + "; give one that is defined")
	}
	return []byte(texts[n]), nil
}

// indexOf returns the index of a text, without regard to case.
func indexOf(texts []string, text []byte, what string) (int, error) {
	for i, t := range texts {
		if strings.EqualFold(t, string(text)) {
			return i, nil
		}
	}
	return 0, errors.New(strconv.Quote(scrub.Peer(string(text))) + " is no " + what + "; give " +
		strings.TrimPrefix(strings.Join(texts, ", "), ", "))
}
