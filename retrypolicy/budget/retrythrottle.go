package budget

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// RetryThrottle is gRPC's retry throttle. It starts with maxTokens tokens. A retryable failure
// takes one, and so does any failure with a pushback that forbids a retry; a success returns ratio.
// With maxTokens/2 or fewer there are no retries: a series ends with OutOfQuota and carries the
// retry's delay. Other failures do not count, nor do attempts that the caller cancelled. gRPC has
// one per server name: see PerKey.
//
// Source: gRFC A6.
type RetryThrottle struct {
	state
	most, ratio, tokens int64 // in thousandths
}

// NewRetryThrottle returns a throttle of 1 to 1000 tokens. ratio is truncated to thousandths, as in
// gRPC.
func NewRetryThrottle(maxTokens int, ratio float64) (*RetryThrottle, error) {
	err := kit.Check("RetryThrottle ",
		kit.Bad(maxTokens < 1 || maxTokens > 1000, "maxTokens is out of range; give 1 to 1000"),
		kit.Bad(!(ratio >= 0.001 && ratio <= 1000), "ratio is out of range; give tokens for a success, 0.001 to 1000"))
	if err != nil {
		return nil, err
	}
	most := int64(maxTokens) * 1000
	return &RetryThrottle{most: most, tokens: most, ratio: int64(ratio*1000 + 1e-6)}, nil // 1.001*1000 is below 1001
}

// Wrap puts the throttle around p.
func (t *RetryThrottle) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{t, t != nil, "RetryThrottle", p}
}

// Tokens returns the current number of tokens.
func (t *RetryThrottle) Tokens() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.tokens) / 1000
}

func (t *RetryThrottle) report(_ *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	change := t.ratio
	switch {
	case v == retrypolicy.VerdictSucceed:
	case a.After >= 0 && (v == retrypolicy.VerdictFail || SaysNothing(v, a)):
		return
	default:
		change = -1000
	}
	t.tokens = min(max(t.tokens+change, 0), t.most)
}

func (t *RetryThrottle) charge(_ *ticket, _ retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	if 2*t.tokens <= t.most {
		return stop(retrypolicy.ReasonOutOfQuota, d.Delay)
	}
	return d
}
