package compat

import (
	"math"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// GRPC is the retry policy of gRPC. The n-th retry comes after
//
//	min(Initial * Multiplier^(n-1), Max) * rand(0.8, 1.2)
//
// which can exceed Max by a fifth. A wait that the server asked for (see GRPCPushback) replaces the
// delay, and the retry after it has the delay of a first one. A negative wait stops with Pushback.
// There are no defaults. Put a budget.RetryThrottle around it as gRPC does. It has no hedging, and
// no transparent retries of calls that never left the client.
//
// Source: gRFC A6.
type GRPC struct {
	// Attempts is the number of attempts, the first included: 2 or more. More than 5 counts as 5.
	Attempts int
	// Initial is the first delay and Max the longest, before jitter.
	Initial, Max time.Duration
	// Multiplier is the growth per retry; above 0.
	Multiplier float64
}

// Decide stops with OutOfAttempts even if the server asked for a wait.
func (g GRPC) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&grpcSeries{GRPC: g}).Decide(a)
}

// Begin begins a series, which counts from the latest pushback.
func (g GRPC) Begin(retrypolicy.Start) retrypolicy.Series { return &grpcSeries{GRPC: g} }

type grpcSeries struct {
	GRPC
	retrypolicy.Free
	began int // the number of the retry after which the growth started again
}

func (s *grpcSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	switch {
	case a.Retry >= min(s.Attempts, 5):
		return stop(retrypolicy.ReasonOutOfAttempts)
	case a.After < 0:
		return stop(retrypolicy.ReasonPushback)
	case a.After > 0:
		s.began = max(a.Retry, 0)
		if a.After == atOnce {
			return again(0)
		}
		return again(a.After)
	}
	if s.began >= a.Retry { // the caller counts anew
		s.began = 0
	}
	a.Retry -= s.began
	return retrypolicy.Backoff{Base: s.Initial, Factor: s.Multiplier, Max: s.Max, Jitter: retrypolicy.JitterProportional,
		Low: 0.8, High: 1.2}.Decide(a)
}

// Validate reports the first invalid parameter.
func (g GRPC) Validate() error {
	return kit.Check("GRPC.",
		kit.Bad(g.Attempts < 2, "Attempts is below 2; it counts the first attempt too"),
		kit.Bad(g.Initial <= 0, "Initial is not positive; give the first delay"),
		kit.Bad(g.Max <= 0, "Max is not positive; give the longest delay"),
		kit.Bad(!(g.Multiplier > 0 && g.Multiplier <= math.MaxFloat64),
			"Multiplier is not positive and finite; give the growth, such as 2"))
}

const atOnce = time.Nanosecond // the server asked for a delay of 0

// GRPCPushback reads the value of the header grpc-retry-pushback-ms, for retrypolicy.Info.After:
// milliseconds that fit into 32 bits. An empty value returns 0, for no header, and 0 ms 1 ns. A
// negative value, or one that is not a number, returns a negative duration: do not try again.
func GRPCPushback(header string) time.Duration {
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

// grpcKinds holds the Kinds of gRPC's status codes. The others are Unknown.
var grpcKinds = [17]transport.Kind{
	3:  transport.Invalid,   // INVALID_ARGUMENT
	4:  transport.Timeout,   // DEADLINE_EXCEEDED
	5:  transport.NotFound,  // NOT_FOUND
	6:  transport.Conflict,  // ALREADY_EXISTS
	7:  transport.Forbidden, // PERMISSION_DENIED
	8:  transport.Throttled, // RESOURCE_EXHAUSTED
	9:  transport.Conflict,  // FAILED_PRECONDITION
	10: transport.Conflict,  // ABORTED
	11: transport.Invalid,   // OUT_OF_RANGE
	12: transport.Unsupported,
	14: transport.Unavailable,
	16: transport.Unauthorized,
}

const grpcUnknown = 2

// NewGRPCClassifier makes a Classifier that returns Again for the codes in retryable and Fail for
// all others. Code is the type codes.Code of the gRPC library. status finds the code in an error,
// and the value of the header grpc-retry-pushback-ms. An error without a status (not ok), or with
// OK, is Undecided. A code that gRPC does not define counts as UNKNOWN.
func NewGRPCClassifier[Code ~uint32](
	status func(error) (code Code, pushback string, ok bool), retryable ...Code,
) (retrypolicy.Classifier, error) {
	if err := kit.Check("NewGRPCClassifier ",
		kit.Bad(status == nil, "status is nil; give a function that finds the status in an error"),
		kit.Bad(len(retryable) == 0, "retryable is empty; name a code, such as UNAVAILABLE")); err != nil {
		return nil, err
	}
	var again [len(grpcKinds)]bool
	for _, c := range retryable {
		if c == 0 || int64(c) >= int64(len(grpcKinds)) {
			return nil, kit.Invalid("NewGRPCClassifier retryable has a code that is no failure of gRPC's; give 1 to 16")
		}
		again[c] = true
	}
	return func(err error) retrypolicy.Info {
		code, pushback, ok := status(err)
		if !ok || code == 0 {
			return retrypolicy.Info{}
		}
		if int64(code) >= int64(len(grpcKinds)) {
			code = grpcUnknown
		}
		info := retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: grpcKinds[code], After: GRPCPushback(pushback)}
		if again[code] {
			info.Verdict = retrypolicy.VerdictAgain
		}
		return info
	}, nil
}
