package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// TruncatedExponential waits min(Base*2^(n-1) + random, Max) before the n-th retry, where random is
// a whole number of milliseconds from 1 to Random. It never stops. The zero value is that of the
// note behind Truncated: Base 1 s, Random 1 s, Max 15 s, so 1.001 to 2 s, 2.001 to 3 s, 4.001 to 5
// s, 8.001 to 9 s, then 15 s. A value that is not all zero is taken as it stands.
type TruncatedExponential struct {
	Base, Random, Max time.Duration
}

func (t TruncatedExponential) settings() TruncatedExponential {
	if t == (TruncatedExponential{}) {
		t = TruncatedExponential{Base: time.Second, Random: time.Second, Max: 15 * time.Second}
	}
	return t
}

// Decide always retries.
func (t TruncatedExponential) Decide(a Attempt) Decision {
	t = t.settings()
	delay := Backoff{Base: t.Base}.plain(max(a.Retry, 1), t.Max)
	if limit := uint64(max(t.Random, 0) / time.Millisecond); limit > 0 {
		delay += min(time.Duration(1+below(limit, a.Rand))*time.Millisecond, t.Max-delay)
	}
	return Decision{Retry: true, Delay: max(delay, 0)}
}

// Validate reports the first parameter that makes no sense.
func (t TruncatedExponential) Validate() error {
	t = t.settings()
	switch {
	case t.Base < 0:
		return invalid("TruncatedExponential.Base is negative; give 0 or more")
	case t.Random < 0:
		return invalid("TruncatedExponential.Random is negative; give 0 or more")
	case t.Base == 0 && t.Random < time.Millisecond:
		return invalid("TruncatedExponential.Base is 0 and Random below 1 ms, so every delay would be 0; give one of them " +
			"(a value that is not all zero has no defaults)")
	case t.Max <= 0:
		return invalid("TruncatedExponential.Max is not positive, so every delay would be 0; give the longest delay (a " +
			"value that is not all zero has no defaults)")
	case t.Max < t.Base:
		return invalid("TruncatedExponential.Max is below Base; give Base or more (a value that is not all zero has no " +
			"defaults)")
	}
	return nil
}

// Truncated is the policy of the note on truncated exponential back-off with fetch-retry, for use
// with ClassifyTruncated:
//
//	5xx and 429     min(1000*2^n + 1..1000, 15000) ms, n from 0   three retries
//	408             1000 ms                                       one retry
//	other 4xx                                                     none
//
// Each row counts its own failures, so after a 408 there are still three retries for 5xx. The note
// is silent about connections that fail; they count as 5xx here, and time-outs of our own as
// 408. The note repeats only what is safe to repeat: see Retrier.Once.
func Truncated() ByKind {
	own := MaxAttempts{Total: 4, Policy: TruncatedExponential{}}
	return ByKind{
		Rules: []Rule{
			{Kinds: Kinds(transport.Timeout), Policy: MaxAttempts{Total: 2, Policy: Fixed{Delay: time.Second}}, Own: true},
			{Kinds: Kinds(transport.Throttled, transport.Unavailable, transport.Network, transport.Unknown), Policy: own,
				Own: true},
		},
		Default: NoRetry{},
	}
}

// ClassifyTruncated is ClassifyHTTP with the note's rows: all of 5xx is Again and Unavailable, and
// of 4xx only 408 and 429 are Again.
func ClassifyTruncated(err error) Info {
	info := ClassifyHTTP(err)
	if info.Verdict == Undecided {
		return info
	}
	s, _ := findStatus(err)
	switch status := s.HTTPStatusCode(); {
	case status >= 500:
		info.Verdict, info.Kind = Again, transport.Unavailable
	case status >= 400 && status != 408 && status != 429:
		info.Verdict = Fail
	}
	return info
}
