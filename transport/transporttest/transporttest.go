// Package transporttest is the conformance suite of package transport: the rules for every
// Transport, for any protocol. The tests of a transport supply a hub and call Run:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
//			hub := newHub(t) // closed by t.Cleanup
//			return &transporttest.Pair{Transport: mqtt.New(...), Creds: ..., WrongCreds: ..., Hub: hub}
//		})
//	}
//
// Each check runs in its own testing/synctest bubble, so waiting costs no real time and leaked
// goroutines are detected. Everything in a Pair must work in memory.
package transporttest

import (
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/transport"
)

// Pair is a transport and the hub that it reaches, with nothing sent yet.
type Pair struct {
	Transport transport.Transport
	// Creds name a device that the hub knows. WrongCreds are the same with another key.
	Creds, WrongCreds *transport.Credentials
	Hub               Hub

	// HubMarks are strings that identify the hub's goroutines, such as import paths: the stack of each
	// of them contains one. The suite ignores those goroutines when it looks for leaks of a session.
	HubMarks []string
	// Features are the subscriptions that the transport supports; others must be replied to with
	// Unsupported.
	Features transport.Features
	// MarksResent: the hub can recognize messages that were handed over again (Item.Resent), and sets
	// Received.Resent.
	MarksResent bool
	// MarksRedelivered: the hub marks repeated deliveries, for Delivery.Redelivered.
	MarksRedelivered bool
	// WholeSeconds: the protocol carries the expiry of a message in whole seconds, rounded up.
	WholeSeconds bool
	// Topic is a topic to which the device may publish besides that of its telemetry. The transport
	// takes messages with a Topic, RETAIN and QoS 0. Empty: it refuses messages with a Topic as
	// Unsupported, or the hub does as Forbidden.
	Topic string
	// Unasked: changes of desired properties come without a subscription to them.
	Unasked bool
	// System: Message.Output and the fields of Message.System are checked, except those in Lacks.
	System bool
	// Lacks are the fields that the protocol has no place for: "Output", "System.To" and so on, or
	// LacksAll. The transport refuses a message with one of them as Unsupported, with an error that
	// names it.
	Lacks []string
	// NoOrder: the protocol does not keep the order of a message's properties.
	NoOrder bool
}

// Hub controls the hub and the network in front of it. Its methods may be called from any goroutine
// of the bubble.
type Hub interface {
	// Received returns all telemetry that arrived so far, in order of arrival.
	Received() []Received
	// HoldAnswers keeps the hub from answering telemetry for at least 15 s; the hub still accepts it.
	// With false the hub sends the held answers within 30 s.
	HoldAnswers(on bool)
	// Cut breaks all connections abruptly. New ones can be made.
	Cut()
	// Silence makes the network drop everything sent over the existing connections, in both
	// directions. The connections stay open.
	Silence()
	// Refuse sets how the hub treats new connections.
	Refuse(r Refusal)
}

// Inbox is also implemented by a Hub with cloud-to-device messages; otherwise they are not checked.
type Inbox interface {
	// Deliver sends the device a message with this body, at once or when it subscribes.
	Deliver(body string)
	// Undelivered returns the number of messages that the device has not accepted yet.
	Undelivered() int
}

// SystemInbox is also implemented by an Inbox whose messages have system properties; otherwise they
// are not checked. For a module it sends them by an input.
type SystemInbox interface {
	Inbox
	// DeliverMessage sends the device m, at once or when it subscribes. m.Output is empty.
	DeliverMessage(m *transport.Message)
	// Input is the input by which messages come; empty for cloud-to-device messages.
	Input() string
}

// Twins is also implemented by a Hub with twins; otherwise they are not checked. The twin starts
// empty, with version 1 for both parts.
type Twins interface {
	// PatchDesired merges a patch into the desired properties.
	PatchDesired(patch string)
	// Reported returns the reported properties as JSON, without "$version".
	Reported() string
}

// Methods is also implemented by a Hub with direct methods; otherwise they are not checked.
type Methods interface {
	// Call calls a method and waits for the answer.
	Call(name, body string) (status int, answer string, err error)
}

// Received is a message received by the hub.
type Received struct {
	transport.Message
	// Resent: it was marked as handed over before.
	Resent bool
}

// Refusal is a way to refuse connections.
type Refusal int

const (
	// RefusalNone: connections are accepted.
	RefusalNone Refusal = iota
	// RefusalUnreachable: the network refuses them.
	RefusalUnreachable
	// RefusalMute: the network accepts them, and no answer ever comes.
	RefusalMute
	// RefusalUnavailable: the hub answers that it cannot serve at the moment.
	RefusalUnavailable
)

// Run runs the suite. newPair is called in each bubble and releases its resources by t.Cleanup;
// before that the suite has ended all sessions.
func Run(t *testing.T, newPair func(t testing.TB) *Pair) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			var p *probe
			synctest.Test(t, func(t *testing.T) {
				p = &probe{TB: t, Pair: newPair(t)}
				c.check(p)
			})
			if p != nil && p.skipped != "" {
				t.Skip(p.skipped)
			}
		})
	}
}

// checks are the checks of the suite.
var checks = []struct {
	name  string
	check func(p *probe)
}{
	{"Dial makes a session that the hub accepts", dialMakesASession},
	{"Dial fails with Unauthorized for wrong credentials", dialFailsForWrongCredentials},
	{"Dial fails with Network when the hub is unreachable", dialFailsWhenUnreachable},
	{"Dial fails with Unavailable when the hub says so", dialFailsWhenUnavailable},
	{"Dial fails with the token source's error", dialFailsWithTheTokenSource},
	{"Dial ends soon after its context", dialEndsWithItsContext},
	{"Dial fails when its context ended before", dialFailsWhenTheContextEndedBefore},
	{"Dial can fail many times and leaves nothing", dialFailsManyTimes},
	{"errors of Dial do not show secrets", dialShowsNoSecret},

	{"each message is answered by one Done", eachMessageIsDoneOnce},
	{"messages arrive in the order of Send", messagesArriveInOrder},
	{"messages arrive as they were sent", messagesArriveAsSent},
	{"a batch belongs to the caller again after Send", batchIsTheCallersAgain},
	{"a tag can be used again after its Done", tagsAreReusable},
	{"Send does not wait for answers while the window fills", sendDoesNotWait},
	{"a message is not done before the hub answered", notDoneBeforeTheAnswer},
	{"a message handed over again arrives, marked if the protocol can", againIsMarked},
	{"a message that is too large fails alone", tooLargeFailsAlone},
	{"a message with a topic goes there, or fails alone where there are none", topicsAreObeyed},
	{"system properties arrive as they were sent", systemPropertiesArrive},
	{"a message with a system property that has no place fails alone", systemPropertiesWithoutAPlaceAreRefused},
	{"a message to be sent at most once does not wait for an answer", atMostOnceDoesNotWait},

	{"the loss of the connection ends Run with one retryable error", lossEndsRun},
	{"messages in flight at a loss get no Done", lossAnswersNothing},
	{"a network that falls silent ends Run", silenceEndsRun},
	{"a new session works after a loss", sessionAfterALoss},
	{"Run ends within a second after its context when idle", runEndsWhenIdle},
	{"Run ends within a second after its context with messages in flight", runEndsInFlight},
	{"Run ends within a second after its context when the network is silent", runEndsWhenSilent},
	{"Run ends when its context ended before it began", runEndsAtOnce},
	{"Send and Do after Run's end do nothing", nothingAfterTheEnd},

	{"operations that the protocol lacks are replied to with Unsupported", lackingOpsAreUnsupported},
	{"OpSubscribe is replied to for each feature", subscribeIsReplied},
	{"deliveries come in order and accepting removes them", deliveriesAreAccepted},
	{"deliveries have their system properties", deliveriesHaveTheirSystemProperties},
	{"a delivery that was released comes again", releasedComesAgain},
	{"a delivery that nobody took comes again", refusedComesAgain},

	{"the twin is read and its reported part is changed", twinIsReadAndPatched},
	{"a patch that the hub does not take is refused", badPatchesAreRefused},
	{"each of many requests at a time is replied to once", requestsAreAnsweredEach},
	{"changes of desired properties come in order", desiredChangesComeInOrder},
	{"method calls are delivered and answered in any order", methodsAreCalled},
	{"an answer after Run's end is replied to as lost", lateAnswersAreLost},
}
