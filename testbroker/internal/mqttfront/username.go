package mqttfront

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A userName is a parsed MQTT user name.
type userName struct {
	host   string
	id     identity.Identity
	params []hubdata.Property // decoded, in order
}

// userNameParams are the parameters that clients send. If one of them stands in the place of a
// module id, it begins the parameters: some clients omit the question mark.
var userNameParams = []string{"api-version=", "DeviceClientType=", "model-id=", "auth-chain="}

// parseUserName parses
//
//	host "/" device [ "/" module ] [ "/" [ "?" ] param *( "&" param ) ]
//
// Parameter values may contain slashes, so only the first three are separators.
func parseUserName(s string) (userName, error) {
	part := strings.SplitN(s, "/", 4)
	if len(part) < 2 {
		return userName{}, errors.New("user name has no device id")
	}
	u := userName{host: part[0], id: identity.Identity{Device: part[1]}}
	query := ""
	switch {
	case len(part) >= 3 && beginsParams(part[2]):
		query = strings.Join(part[2:], "/")
	case len(part) == 3 && part[2] == "":
	case len(part) >= 3:
		u.id.Module = part[2]
		if err := identity.CheckID("module", u.id.Module); err != nil {
			return userName{}, fmt.Errorf("user name: %w", err)
		}
		if len(part) == 4 {
			query = part[3]
		}
	}
	if u.host == "" {
		return userName{}, errors.New("user name has no host name")
	}
	if err := identity.CheckID("device", u.id.Device); err != nil {
		return userName{}, fmt.Errorf("user name: %w", err)
	}
	for pair := range strings.SplitSeq(strings.TrimPrefix(query, "?"), "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.PathUnescape(value)
		if err != nil {
			return userName{}, fmt.Errorf("user name: parameter %s: %w", name, err)
		}
		if name == "api-version" && !dateShaped(text) {
			return userName{}, fmt.Errorf("user name: api-version %q is no date", text)
		}
		u.params = append(u.params, hubdata.Property{Name: name, Value: text})
	}
	return u, nil
}

// param returns the value of the first parameter with a name; empty if there is none.
func (u userName) param(name string) string {
	for _, p := range u.params {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

func beginsParams(s string) bool {
	if strings.HasPrefix(s, "?") {
		return true
	}
	for _, p := range userNameParams {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// dateShaped accepts "2021-04-12" and "2021-04-12-preview".
func dateShaped(s string) bool {
	_, err := time.Parse(time.DateOnly, strings.TrimSuffix(s, "-preview"))
	return err == nil
}
