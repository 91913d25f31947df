package grpc

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/retrypolicy/internal/wrap"
	"github.com/hubline-iot/hubline/transport"
)

// Policy is the retry policy of gRPC. The n-th retry comes after
//
//	min(Initial * Multiplier^(n-1), Max) * rand(0.8, 1.2)
//
// which can exceed Max by a fifth. A wait that the server asked for (Attempt.After; see Pushback)
// replaces the delay exactly, and the retry after it has the delay of a first one. A negative wait
// stops with retrypolicy.ReasonPushback. There are no defaults: set every field. It has no state;
// put a Throttle around it as gRPC does.
//
// It excludes hedging, and gRPC's transparent retries of calls that never left the client.
//
// Source: gRFC A6.
type Policy struct {
	// Attempts is the number of attempts, the first included: 2 or more. More than 5 counts as 5.
	Attempts int
	// Initial is the first delay, before jitter.
	Initial time.Duration
	// Max is the longest delay, before jitter.
	Max time.Duration
	// Multiplier is the growth per retry; above 0.
	Multiplier float64
}

// mostAttempts is the client's own limit of attempts.
const mostAttempts = 5

// Decide stops with OutOfAttempts even if the server asked for a wait.
func (g Policy) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&series{Policy: g}).Decide(a)
}

// Begin begins a series, which counts from the latest pushback.
func (g Policy) Begin(retrypolicy.Start) retrypolicy.Series { return &series{Policy: g} }

// series is a series of a Policy.
type series struct {
	Policy
	retrypolicy.Free
	began int // the number of the retry after which the growth started again
}

func (s *series) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	switch {
	case a.Retry >= min(s.Attempts, mostAttempts):
		return wrap.Stop(retrypolicy.ReasonOutOfAttempts)
	case a.After < 0:
		return wrap.Stop(retrypolicy.ReasonPushback)
	case a.After > 0:
		s.began = max(a.Retry, 0)
		if a.After == atOnce {
			return retrypolicy.Decision{Retry: true}
		}
		return retrypolicy.Decision{Retry: true, Delay: a.After}
	}
	if s.began >= a.Retry { // the caller counts anew
		s.began = 0
	}
	a.Retry -= s.began
	return retrypolicy.Backoff{Base: s.Initial, Factor: s.Multiplier, Max: s.Max, Jitter: retrypolicy.JitterProportional,
		Low: 0.8, High: 1.2}.Decide(a)
}

// Validate reports the first invalid parameter.
func (g Policy) Validate() error {
	switch {
	case g.Attempts < 2:
		return kit.Invalid("grpc.Policy.Attempts is below 2; it counts the first attempt too")
	case g.Initial <= 0:
		return kit.Invalid("grpc.Policy.Initial is not positive; give the first delay")
	case g.Max <= 0:
		return kit.Invalid("grpc.Policy.Max is not positive; give the longest delay")
	case !(g.Multiplier > 0 && g.Multiplier <= math.MaxFloat64):
		return kit.Invalid("grpc.Policy.Multiplier is not positive and finite; give the growth, such as 2")
	}
	return nil
}

// atOnce represents a server that asked for a delay of 0; 0 itself means that it did not ask.
const atOnce = time.Nanosecond

// Pushback reads the value of the header grpc-retry-pushback-ms, for retrypolicy.Info.After or the
// RetryAfter of a transport.Error: milliseconds that fit into 32 bits. 0 ms becomes 1 ns, because 0
// means that there was no header. An empty value returns 0. A negative value, or one that is not a
// number, returns a negative duration: do not try again.
func Pushback(header string) time.Duration {
	if header == "" {
		return 0
	}
	ms, err := strconv.ParseInt(header, 10, 32)
	switch {
	case err != nil || ms < 0:
		return -1
	case ms == 0:
		return atOnce
	}
	return time.Duration(ms) * time.Millisecond
}

// Code is a status code of gRPC; convert a codes.Code to it.
type Code uint8

const (
	OK Code = iota
	Cancelled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated

	codes // number of codes
)

// kindOf holds the Kind of each code.
var kindOf = [codes]transport.Kind{
	OK:                 transport.Unknown,
	Cancelled:          transport.Unknown,
	Unknown:            transport.Unknown,
	InvalidArgument:    transport.Invalid,
	DeadlineExceeded:   transport.Timeout,
	NotFound:           transport.NotFound,
	AlreadyExists:      transport.Conflict,
	PermissionDenied:   transport.Forbidden,
	ResourceExhausted:  transport.Throttled,
	FailedPrecondition: transport.Conflict,
	Aborted:            transport.Conflict,
	OutOfRange:         transport.Invalid,
	Unimplemented:      transport.Unsupported,
	Internal:           transport.Unknown,
	Unavailable:        transport.Unavailable,
	DataLoss:           transport.Unknown,
	Unauthenticated:    transport.Unauthorized,
}

// Status finds the status in an error: its code, and the value of the header
// grpc-retry-pushback-ms, empty if there is none. ok is false for an error without a status.
type Status func(err error) (code Code, pushback string, ok bool)

// NewClassifier makes a Classifier that returns Again for the codes in retryable and Fail for all
// others. An error without a status, or with OK, is Undecided. A code that gRPC does not define
// counts as UNKNOWN. As in gRPC, retryable has no default: the service decides which codes may be
// repeated.
func NewClassifier(status Status, retryable ...Code) (retrypolicy.Classifier, error) {
	if status == nil {
		return nil, kit.Invalid("grpc.NewClassifier status is nil; give a function that finds the status in an error")
	}
	if len(retryable) == 0 {
		return nil, kit.Invalid("grpc.NewClassifier retryable is empty; name a code, such as grpc.Unavailable")
	}
	var again [codes]bool
	for _, c := range retryable {
		if c == OK || c >= codes {
			return nil, kit.Invalid("grpc.NewClassifier retryable has a code that is no failure of gRPC's; give 1 to 16")
		}
		again[c] = true
	}
	return func(err error) retrypolicy.Info {
		code, pushback, ok := status(err)
		if !ok || code == OK {
			return retrypolicy.Info{}
		}
		if code >= codes {
			code = Unknown
		}
		info := retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: kindOf[code], After: Pushback(pushback)}
		if again[code] {
			info.Verdict = retrypolicy.VerdictAgain
		}
		return info
	}, nil
}

// Throttle is gRPC's retry throttle. It starts with maxTokens tokens. A retryable failure takes
// one, and so does any failure with a pushback that forbids a retry; a success returns ratio. With
// maxTokens/2 or fewer there are no retries: a series ends with OutOfQuota and carries the retry's
// delay. First attempts are never refused. Other failures do not count, nor do attempts that the
// caller cancelled.
//
// gRPC has one per server name: see PerKey. Safe for concurrent use.
//
// Source: gRFC A6.
type Throttle struct {
	most  int64 // all in thousandths
	ratio int64

	mu     sync.Mutex
	tokens int64
}

// NewThrottle returns a throttle of 1 to 1000 tokens. ratio is truncated to thousandths, as in
// gRPC.
func NewThrottle(maxTokens int, ratio float64) (*Throttle, error) {
	switch {
	case maxTokens < 1 || maxTokens > 1000:
		return nil, kit.Invalid("grpc.Throttle maxTokens is out of range; give 1 to 1000")
	case !(ratio >= 0.001 && ratio <= 1000):
		return nil, kit.Invalid("grpc.Throttle ratio is out of range; give tokens for a success, 0.001 to 1000")
	}
	most := int64(maxTokens) * 1000
	return &Throttle{most: most, tokens: most, ratio: int64(ratio*1000 + 1e-6)}, nil // 1.001*1000 is below 1001
}

// Wrap puts the throttle around p: p decides first.
func (t *Throttle) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return wrap.Policy[Throttle]{Inner: p, Budget: t, Names: &throttleNames, NewSeries: newThrottleSeries}
}

var throttleNames = wrap.Names{Type: "grpc.Throttle", Constructor: "grpc.NewThrottle"}

// Tokens returns the current number of tokens.
func (t *Throttle) Tokens() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.tokens) / 1000
}

func (t *Throttle) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return 2*t.tokens > t.most
}

func (t *Throttle) learn(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	change := t.ratio
	switch {
	case v == retrypolicy.VerdictSucceed:
	case a.After >= 0 && (v == retrypolicy.VerdictFail || wrap.SaysNothing(v, a)):
		return
	default:
		change = -1000
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(max(t.tokens+change, 0), t.most)
}

// throttleSeries is a series under a Throttle.
type throttleSeries struct {
	wrap.Base
	throttle *Throttle
}

func newThrottleSeries(t *Throttle) wrap.Series { return &throttleSeries{throttle: t} }

func (s *throttleSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := s.Base.Decide(a)
	if d.Retry && !s.throttle.open() {
		return retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: d.Delay}
	}
	return d
}

func (s *throttleSeries) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	s.throttle.learn(v, a)
	s.Base.Report(v, a)
}
