//go:build !tinygo

package errfilter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

var sink errfilter.Rule

func TestOfAllocatesNothing(t *testing.T) {
	deep := error(&transport.Error{Kind: transport.Unavailable, RetryAfter: -1})
	for range 8 {
		deep = fmt.Errorf("level: %w", deep)
	}
	for name, err := range map[string]error{
		"nil": nil, "kind": transport.Throttled, "error": &transport.Error{Kind: transport.Network}, "eight wraps": deep,
		"foreign": errors.New("?"), "cancelled": fmt.Errorf("send: %w", context.Canceled),
		"deadline": context.DeadlineExceeded,
	} {
		if n := testing.AllocsPerRun(200, func() { sink = errfilter.Of(err) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A transport's own time limit on a socket is not the end of its caller's context.
func TestADeadlineOfASocketIsRetryable(t *testing.T) {
	err := &transport.Error{Kind: transport.Timeout, Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}}
	if rule := errfilter.Of(err); !rule.Retry || rule.Kind != transport.Timeout {
		t.Errorf("Of = %+v, want a retryable Timeout", rule)
	}
}

// Rules is the table, here printed as a program would show it to its user.
func Example() {
	for _, r := range errfilter.Rules() {
		verdict := "stop"
		switch {
		case r.Retry && r.Pace == errfilter.PaceSlow:
			verdict = "retry slowly"
		case r.Retry:
			verdict = "retry"
		}
		fmt.Printf("%-23s  %-12s  %s\n", r.Kind, verdict, r.Hint())
	}
	// Output:
	// unknown error            stop          the service gave an answer that is not known, and repeating what is not understood may do harm
	// network failure          retry         connections come back
	// timed out                retry         a slow network or service may be faster next time
	// service unavailable      retry         the service is restarting or moving and will be back
	// throttled                retry slowly  the service takes more when it gets less: wait
	// quota exceeded           retry slowly  the allowance is refilled with time (a hub's daily quota at 00:00 UTC); buy units or send less
	// clock not set            retry slowly  the clock may be set any moment; set it, by SNTP for one
	// unauthorized             stop          the same credentials would be refused again; check key or certificate chain, device id, the clock, and that the device is enabled
	// certificate not trusted  stop          the same certificate would fail again; check host name, trusted roots and the clock
	// forbidden                stop          the identity lacks the right, or it or the hub is disabled; grant or enable it on the hub
	// not found                stop          what does not exist will not appear by asking again; check names, and create it
	// too large                stop          the same message would be too large again; split it or upload it as a file
	// invalid                  stop          the same input would be wrong again; correct the field that the error names
	// conflict                 stop          the state must be read again before another attempt
	// unsupported              stop          this protocol or service lacks the operation; if the service has it, use another transport
	// protocol violation       stop          the peer does not speak the protocol as expected; check host and port
	// retries ended            stop          the retry policy or the outage limit ended the retries; open the client again
	// message expired          stop          the message's time is over
	// message dropped          stop          the queue was full and made room; enlarge it or send less
	// client closed            stop          the client is not open
	// cancelled                stop          the caller's context ended; call again with another
	// poison message           stop          the same message would end connections again; compare its size and content with the peer's limits
}

// Of finds the rule of a client's last error, whatever wraps it.
func ExampleOf() {
	err := fmt.Errorf("telemetry: %w", &transport.Error{Kind: transport.Quota, Op: transport.OpSend, Proto: "amqp"})
	rule := errfilter.Of(err)
	fmt.Println(err)
	fmt.Println(rule.Retry, rule.Pace == errfilter.PaceSlow)
	fmt.Println(rule.Hint())
	// Output:
	// telemetry: amqp send: quota exceeded
	// true true
	// the allowance is refilled with time (a hub's daily quota at 00:00 UTC); buy units or send less
}
