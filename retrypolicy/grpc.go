package retrypolicy

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// GRPC is the retry policy of gRPC. The n-th retry comes after
//
//	min(Initial * Multiplier^(n-1), Max) * rand(0.8, 1.2)
//
// which can be a fifth more than Max. A wait that the server asked for (Attempt.After; see
// Pushback) is kept to the nanosecond instead, and the retry after it has the delay of a first one;
// one that asks not to be tried again stops with ToldNotTo. There are no defaults: each field has
// to be given. It has no state; put a RetryThrottle around it as gRPC does.
//
// Hedging and the retries that gRPC makes unasked for calls that never left the client are not part
// of it.
//
// Source: gRFC A6.
type GRPC struct {
	// Attempts is how many tries there are, the first included: 2 or more. More than 5 counts as 5.
	Attempts int
	// Initial is the first delay, before jitter.
	Initial time.Duration
	// Max is the longest delay, before jitter.
	Max time.Duration
	// Multiplier is the growth; above 0.
	Multiplier float64
}

// grpcMost is the client's own limit of attempts.
const grpcMost = 5

// Decide stops with OutOfAttempts, whatever the server asked for. Decision.Step is the retry after
// which the growth began anew.
func (g GRPC) Decide(a Attempt) Decision {
	switch {
	case a.Retry >= min(g.Attempts, grpcMost):
		return stop(OutOfAttempts)
	case a.After < 0:
		return stop(ToldNotTo)
	case a.After > 0:
		d := Decision{Retry: true, Step: uint64(max(a.Retry, 0))}
		if a.After != atOnce {
			d.Delay = a.After
		}
		return d
	}
	began := a.Last.Step
	if a.Retry < 1 || began >= uint64(a.Retry) { // another policy's
		began = 0
	}
	a.Retry -= int(began)
	d := Backoff{Base: g.Initial, Factor: g.Multiplier, Max: g.Max, Jitter: Proportional, Low: 0.8, High: 1.2}.Decide(a)
	d.Step = began
	return d
}

// Validate reports the first parameter that makes no sense.
func (g GRPC) Validate() error {
	switch {
	case g.Attempts < 2:
		return invalid("GRPC.Attempts is below 2; it counts the first try too")
	case g.Initial <= 0:
		return invalid("GRPC.Initial is not positive; give the first delay")
	case g.Max <= 0:
		return invalid("GRPC.Max is not positive; give the longest delay")
	case !(g.Multiplier > 0 && g.Multiplier <= math.MaxFloat64):
		return invalid("GRPC.Multiplier is not positive; give the growth, such as 2")
	}
	return nil
}

// atOnce is a wait of nothing that a server asked for. 0 would be no wish.
const atOnce = time.Nanosecond

// Pushback reads the value of the header grpc-retry-pushback-ms, for Info.After or the RetryAfter
// of a transport.Error: milliseconds that fit into 32 bits. 0 ms is told as a nanosecond, since 0
// means that there was no header; so is an empty value. A negative value, and one that is no
// number, is negative: do not try again.
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

// GRPCCode is a status code of gRPC; convert a codes.Code to it.
type GRPCCode uint8

const (
	GRPCOK GRPCCode = iota
	GRPCCancelled
	GRPCUnknown
	GRPCInvalidArgument
	GRPCDeadlineExceeded
	GRPCNotFound
	GRPCAlreadyExists
	GRPCPermissionDenied
	GRPCResourceExhausted
	GRPCFailedPrecondition
	GRPCAborted
	GRPCOutOfRange
	GRPCUnimplemented
	GRPCInternal
	GRPCUnavailable
	GRPCDataLoss
	GRPCUnauthenticated

	grpcCodes // number of codes
)

// grpcKind holds the Kind of each code.
var grpcKind = [grpcCodes]transport.Kind{
	GRPCOK:                 transport.Unknown,
	GRPCCancelled:          transport.Unknown,
	GRPCUnknown:            transport.Unknown,
	GRPCInvalidArgument:    transport.Invalid,
	GRPCDeadlineExceeded:   transport.Timeout,
	GRPCNotFound:           transport.NotFound,
	GRPCAlreadyExists:      transport.Conflict,
	GRPCPermissionDenied:   transport.Forbidden,
	GRPCResourceExhausted:  transport.Throttled,
	GRPCFailedPrecondition: transport.Conflict,
	GRPCAborted:            transport.Conflict,
	GRPCOutOfRange:         transport.Invalid,
	GRPCUnimplemented:      transport.Unsupported,
	GRPCInternal:           transport.Unknown,
	GRPCUnavailable:        transport.Unavailable,
	GRPCDataLoss:           transport.Unknown,
	GRPCUnauthenticated:    transport.Unauthorized,
}

// GRPCStatus finds the status in an error: its code, and the value of the header
// grpc-retry-pushback-ms or nothing. ok is false for an error without a status.
type GRPCStatus func(err error) (code GRPCCode, pushback string, ok bool)

// NewGRPCClassifier makes a Classifier that asks for another try after the codes in retryable, and
// fails all others. An error in which status finds nothing, or OK, is left to the next classifier.
// A code that gRPC does not define is UNKNOWN. As in gRPC there is no default for retryable: what
// may be repeated is the service's to say.
func NewGRPCClassifier(status GRPCStatus, retryable ...GRPCCode) (Classifier, error) {
	if status == nil {
		return nil, invalid("NewGRPCClassifier status is nil; give a function that finds the status in an error")
	}
	if len(retryable) == 0 {
		return nil, invalid("NewGRPCClassifier retryable is empty; name a code, such as GRPCUnavailable")
	}
	var again [grpcCodes]bool
	for _, c := range retryable {
		if c == GRPCOK || c >= grpcCodes {
			return nil, invalid("NewGRPCClassifier retryable has a code that is no failure of gRPC's; give 1 to 16")
		}
		again[c] = true
	}
	return func(err error) Info {
		code, pushback, ok := status(err)
		if !ok || code == GRPCOK {
			return Info{}
		}
		if code >= grpcCodes {
			code = GRPCUnknown
		}
		info := Info{Verdict: Fail, Kind: grpcKind[code], After: Pushback(pushback)}
		if again[code] {
			info.Verdict = Again
		}
		return info
	}, nil
}

// RetryThrottle is gRPC's: it holds tokens, at first maxTokens. A failure that could be retried
// takes one, as does any that asks not to be tried again; a success gives back ratio. While there
// are maxTokens/2 or fewer there are no retries: a series ends with OutOfQuota and carries the
// delay that the retry would have had. First tries are never refused. Other failures do not count,
// nor does what the caller cancelled.
//
// gRPC has one for each server name: see PerKey. Safe for concurrent use.
//
// Source: gRFC A6.
type RetryThrottle struct {
	most  int64 // all in thousandths
	ratio int64

	mu     sync.Mutex
	tokens int64
}

// NewRetryThrottle makes a throttle of 1 to 1000 tokens. ratio counts in thousandths; what is
// beyond is cut off, as gRPC does.
func NewRetryThrottle(maxTokens int, ratio float64) (*RetryThrottle, error) {
	switch {
	case maxTokens < 1 || maxTokens > 1000:
		return nil, invalid("RetryThrottle maxTokens is out of range; give 1 to 1000")
	case !(ratio >= 0.001 && ratio <= 1000):
		return nil, invalid("RetryThrottle ratio is out of range; give tokens for a success, 0.001 to 1000")
	}
	most := int64(maxTokens) * 1000
	return &RetryThrottle{most: most, tokens: most, ratio: int64(ratio*1000 + 1e-6)}, nil // 1.001*1000 is below 1001
}

// Wrap puts the throttle around p: p decides first.
func (t *RetryThrottle) Wrap(p Policy) Policy { return ratioed{t, p} }

// Tokens is how many there are.
func (t *RetryThrottle) Tokens() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.tokens) / 1000
}

func (t *RetryThrottle) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return 2*t.tokens > t.most
}

func (t *RetryThrottle) learn(a Attempt) {
	change := t.ratio
	switch {
	case a.Err == nil:
	case a.After >= 0 && (a.Terminal || saysNothing(a)):
		return
	default:
		change = -1000
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(max(t.tokens+change*outcomes(a), 0), t.most)
}

type ratioed struct {
	throttle *RetryThrottle
	policy   Policy
}

func (r ratioed) Decide(a Attempt) Decision {
	d := r.policy.Decide(a)
	if d.Retry && !r.throttle.open() {
		return refuse(r.policy, a, d, Decision{Reason: OutOfQuota, Delay: d.Delay})
	}
	return d
}

func (r ratioed) Withdraw(a Attempt) { Withdraw(r.policy, a) }

func (r ratioed) Observe(a Attempt) {
	r.throttle.learn(a)
	Observe(r.policy, a)
}

func (r ratioed) Admit(a Attempt) Decision { return Admit(r.policy, a) }

func (r ratioed) Validate() error {
	if r.throttle == nil {
		return invalid("RetryThrottle is nil; make one with NewRetryThrottle")
	}
	return within("the policy that RetryThrottle.Wrap was given", r.policy)
}
