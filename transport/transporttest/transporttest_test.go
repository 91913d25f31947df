package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheReferenceTransportPasses(t *testing.T) {
	t.Run("with everything", func(t *testing.T) { Run(t, newReference(right)) })
	t.Run("with messages only", func(t *testing.T) { Run(t, newReference("lacking is right")) })
}

// faults maps each fault to the check that must find it.
var faults = map[fault]string{
	"failed dials use something up":              "Dial can fail many times and leaves nothing",
	"a tag works once":                           "a tag can be used again after its Done",
	"there is no session after a loss":           "a new session works after a loss",
	"the disconnect waits for the network":       "Run ends within a second after its context when the network is silent",
	"a context that ended before is not seen":    "Run ends when its context ended before it began",
	"a failed dial leaves a goroutine":           "Dial fails with Unauthorized for wrong credentials",
	"a failed dial returns another error type":   "Dial fails with Unauthorized for wrong credentials",
	"a failed dial has the wrong scope":          "Dial fails with Network when the hub is unreachable",
	"a failed dial is always a network failure":  "Dial fails with Unauthorized for wrong credentials",
	"a failed dial is always unauthorized":       "Dial fails with Unavailable when the hub says so",
	"Dial takes all credentials":                 "Dial fails with Unauthorized for wrong credentials",
	"the token source's error is lost":           "Dial fails with the token source's error",
	"Dial ends late":                             "Dial ends soon after its context",
	"Dial does not look at its context":          "Dial fails when its context ended before",
	"errors show the token":                      "errors of Dial do not show secrets",
	"Done comes twice":                           "each message is answered by one Done",
	"every tenth message is lost":                "each message is answered by one Done",
	"messages arrive twice":                      "each message is answered by one Done",
	"a batch arrives in reverse":                 "messages arrive in the order of Send",
	"properties are lost":                        "messages arrive as they were sent",
	"the batch is kept":                          "a batch belongs to the caller again after Send",
	"Send waits for answers":                     "Send does not wait for answers while the window fills",
	"messages are done as soon as they are sent": "a message is not done before the hub answered",
	"what is sent again is not marked":           "a message handed over again arrives, marked if the protocol can",
	"too large goes unanswered":                  "a message that is too large fails alone",
	"too large has the wrong scope":              "a message that is too large fails alone",
	"topics are lost":                            "a message with a topic goes there, or fails alone where there are none",
	"RETAIN is lost":                             "a message with a topic goes there, or fails alone where there are none",
	"lacking topics are ignored":                 "a message with a topic goes there, or fails alone where there are none",
	"system properties are lost":                 "system properties arrive as they were sent",
	"a refusal does not name the field":          "a message with a system property that has no place fails alone",
	"fields without a place are ignored":         "a message with a system property that has no place fails alone",
	"system properties of deliveries are lost":   "deliveries have their system properties",
	"QoS 0 becomes QoS 1":                        "a message to be sent at most once does not wait for an answer",
	"QoS 0 waits for an answer":                  "a message to be sent at most once does not wait for an answer",
	"a loss has the scope of an operation":       "the loss of the connection ends Run with one retryable error",
	"a loss is another error type":               "the loss of the connection ends Run with one retryable error",
	"a loss is terminal":                         "the loss of the connection ends Run with one retryable error",
	"a loss is not noticed":                      "the loss of the connection ends Run with one retryable error",
	"a loss fails the messages in flight":        "messages in flight at a loss get no Done",
	"silence is not noticed":                     "a network that falls silent ends Run",
	"the disconnect takes long":                  "Run ends within a second after its context when idle",
	"the disconnect waits for answers":           "Run ends within a second after its context with messages in flight",
	"Run returns nil":                            "Dial makes a session that the hub accepts",
	"a goroutine is left behind":                 "Dial makes a session that the hub accepts",
	"a late goroutine calls the sink":            "Dial makes a session that the hub accepts",
	"Send works after the end":                   "Send and Do after Run's end do nothing",
	"Do replies after the end":                   "Send and Do after Run's end do nothing",
	"lacking operations get no reply":            "operations that the protocol lacks are replied to with Unsupported",
	"lacking operations succeed":                 "operations that the protocol lacks are replied to with Unsupported",
	"subscribing is not replied to":              "OpSubscribe is replied to for each feature",
	"subscribing is replied to twice":            "OpSubscribe is replied to for each feature",
	"deliveries come in reverse":                 "deliveries come in order and accepting removes them",
	"deliveries are accepted at once":            "deliveries come in order and accepting removes them",
	"accepting does nothing":                     "deliveries come in order and accepting removes them",
	"releasing accepts":                          "a delivery that was released comes again",
	"what nobody took is accepted":               "a delivery that nobody took comes again",
	"redelivery is not marked":                   "a delivery that was released comes again",
	"every delivery is marked":                   "deliveries come in order and accepting removes them",
	"patches are lost":                           "the twin is read and its reported part is changed",
	"the version is lost":                        "the twin is read and its reported part is changed",
	"the expected version is lost":               "a patch that the hub does not take is refused",
	"refused patches have the wrong kind":        "a patch that the hub does not take is refused",
	"every tenth request is not replied to":      "each of many requests at a time is replied to once",
	"requests are replied to twice":              "each of many requests at a time is replied to once",
	"versions of changes are lost":               "changes of desired properties come in order",
	"changes come twice":                         "changes of desired properties come in order",
	"names of methods are lost":                  "method calls are delivered and answered in any order",
	"late answers vanish":                        "an answer after Run's end is replied to as lost",
	"answers go to the first call":               "method calls are delivered and answered in any order",
}

func TestTheSuiteFindsEachFault(t *testing.T) {
	found := map[string]bool{}
	for f, name := range faults {
		t.Run(string(f), func(t *testing.T) {
			for _, c := range checks {
				if c.name == name {
					found[name] = true
					if failures := examine(t, c.check, newReference(f)); len(failures) == 0 {
						t.Errorf("%q passed", name)
					}
					return
				}
			}
			t.Fatalf("there is no check %q", name)
		})
	}
	if !t.Failed() {
		for _, c := range checks {
			if !found[c.name] {
				t.Errorf("no fault is aimed at %q", c.name)
			}
		}
	}
}

// examine runs one check and returns its failures.
func examine(t *testing.T, check func(*probe), newPair func(testing.TB) *Pair) []string {
	r := &recorder{TB: t}
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ctx = ctx
		r.do(func() { check(&probe{TB: r, Pair: newPair(r)}) })
		cancel()
		for i := len(r.cleanups) - 1; i >= 0; i-- {
			r.do(r.cleanups[i])
		}
		time.Sleep(24 * time.Hour) // goroutines that a fault leaked end by themselves
	})
	return r.failures
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// do calls f, which may end its goroutine by FailNow.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) Skip(...any) { runtime.Goexit() }

var (
	_ Hub         = (*refHub)(nil)
	_ SystemInbox = (*refHub)(nil)
)
var _ transport.Transport = (*refTransport)(nil)
