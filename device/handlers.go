package device

import (
	"errors"
	"slices"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// HandleMessages registers handle for cloud-to-device messages, and in a module for the messages of
// all inputs that HandleInput has no handler for. It gets them one at a time, in the order of
// delivery. Another call replaces the handler for the messages that it has not yet got.
// nil removes it: messages then wait, up to Options.Inbox of them, for the next handler or the end
// of the connection, and the next connection does not subscribe. Over MQTT a hub remembers an
// earlier subscription, so messages may come without one; they wait in the same way.
//
// The hub's lock on a message ends after a minute (over AMQP, and over MQTT as package testbroker
// models it), also while the message waits. Each end counts as a delivery, and after the hub's
// limit (10 by default) the hub dead-letters the message. The next handler may then still get it,
// and its answer has no effect.
//
// HandleMessages may be called after Open. Messages that come before the first call, by a
// subscription that an MQTT hub remembers, wait for it, 1 MB of them at most.
//
// A hub that does not know that a message was settled delivers it again, with Message.Redelivered
// set. A slow handler delays only further messages (Options.Inbox). A result that comes after the
// handler's connection ended settles nothing: the hub delivers this message and those behind it
// again, each up to the hub's limit (10 times by default). Only over MQTT 5 with QoS 2 it counts on
// the next connection, and those behind it wait here. Over MQTT without enhanced authentication
// each renewal of a token is a new connection, so a handler that runs longer than a token lasts can
// never settle its message: copy the message, do long work elsewhere, and return.
//
// A handler may call the client's methods, but Close only in another goroutine, because Close waits
// for the handler, and until the session has its result, for CloseTimeout at most. A client with a
// handler subscribes before each connection counts as Connected.
// Over a transport that is known to have no messages for the device, HandleMessages fails with
// Unsupported. Where only the peer knows, Status.Err says so, and the connection stays.
func (c *Client) HandleMessages(handle MessageHandler) error {
	if e := c.lacks(transport.FeatureMessages, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	b := c.theInbox()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handle = handle
	b.startLocked()
	c.poke()
	return nil
}

// HandleInput registers handle for the messages that come by one input of a module, as an edge
// gateway routes them. Names of inputs are compared exactly. What HandleMessages says holds here as
// well. The handlers of all inputs and that of HandleMessages are called one at a time, in the
// order of delivery over all inputs, so one that is slow delays the others. Another call for the
// same input replaces its handler, and nil removes it. A handler that sends a message on copies its
// Body, Properties and System (see MessageHandler).
//
// The handler of HandleMessages gets the messages of inputs without a handler of their own. Without
// it, a module with a handler for any other input rejects such a message in its turn: over AMQP the
// gateway drops it, and over MQTT, which cannot reject, it is acknowledged. Stats.InputsUnhandled
// counts it and Trace.InputUnhandled names the input. It is not kept back, because a gateway sends
// 16 messages before the first one is settled (EdgeHub's MaxPendingInboundAcknowledgements), over
// all inputs. For the same reason Options.Inbox should not be below 16, and a handler that releases
// messages over MQTT stops the module's inputs after 16 of them, until the next connection. When
// the last handler is removed, messages wait as after HandleMessages(nil).
//
// A client subscribes to all inputs when it has any handler. Over HTTPS there are no inputs, and
// HandleInput fails with Unsupported. With another dialect of MQTT than dialect.Hub messages have
// no Input, and go to the handler of HandleMessages. A device has no inputs either: the error is
// Invalid if the credentials have no ModuleID.
func (c *Client) HandleInput(input string, handle MessageHandler) error {
	if c.creds.ModuleID == "" {
		return &transport.Error{Kind: transport.Invalid, Op: transport.OpSubscribe,
			Err: errors.New("a device has no inputs; give credentials with a ModuleID, or use HandleMessages")}
	}
	if e := c.lacks(transport.FeatureMessages, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	b := c.theInbox()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setInputLocked(input, handle)
	b.startLocked()
	c.poke()
	return nil
}

// theInbox returns the client's inbox, which the first call makes.
func (c *Client) theInbox() *inbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inbox == nil {
		c.inbox = newInbox(c)
		c.addFeatureLocked(c.inbox.feature())
	}
	return c.inbox
}

// HandleMethod registers handle for the direct method called name; the name "" is for all methods
// without a handler of their own. It may be called at any time, also before Open. Another call for
// a name replaces its handler; nil removes it. The error is Invalid for a name that no hub passes
// on.
//
// Handlers run concurrently, up to Options.MethodLimit. The client itself answers with the status
//
//   - 404, when there is no handler;
//   - 503, when 16 calls wait already, or the call's time ended while it waited;
//   - 500, when the handler panicked, or its answer is not JSON in UTF-8, is nested deeper than 64
//     arrays and objects, is larger than 128 KiB or has a status that does not fit into 32 bits.
//     That is reported to Trace.HandlerPanic and counted.
//
// Each call is run at most once. It is not run again when its answer could not be sent because the
// connection ended (Trace.AnswerLost). Answers that were sent and then lost are not detected,
// because a hub does not confirm answers.
//
// Memory stays bounded when a hub calls but does not read the answers. The client holds at most
// 4 MiB of bodies, and 48 calls and answers beyond MethodLimit; it answers further calls with 503.
// When 32 such refusals wait as well, further calls get no answer; they are counted in
// Stats.AnswersLost and reported to Trace.AnswerLost. A call whose name or reference is longer than
// 1 KiB is ignored.
//
// A handler may call the client's methods, but Close only in another goroutine: Close waits for
// handlers, and their answers, for CloseTimeout at most.
//
// A client with a handler subscribes before each connection counts as Connected. Over a transport
// that is known to have no methods, HandleMethod fails with Unsupported. Where only the peer knows,
// Status.Err says so, and the connection stays.
func (c *Client) HandleMethod(name string, handle MethodHandler) error {
	if !validMethod(name) {
		return &transport.Error{Kind: transport.Invalid, Op: transport.OpSubscribe,
			Err: errors.New("the method's name has a character that no hub passes on; use printable ASCII without space and " +
				"$()<>@,;:\\\"/[]?={}")}
	}
	if e := c.lacks(transport.FeatureMethods, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	c.mu.Lock()
	if c.methods == nil {
		c.methods = &methods{poke: c.poke, set: &c.set, ctx: lifetime.New()}
		c.addFeatureLocked(c.methods.feature())
	}
	m := c.methods
	c.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handlers = slices.DeleteFunc(m.handlers, func(h handler) bool { return h.name == name })
	if handle != nil {
		m.handlers = append(m.handlers, handler{name, handle})
	}
	c.poke()
	return nil
}

func validMethod(name string) bool {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c <= ' ' || c > '~':
			return false
		case c == '$' || c == '(' || c == ')' || c == '<' || c == '>' || c == '@' || c == ',' || c == ';' || c == ':' ||
			c == '\\' || c == '"' || c == '/' ||
			c == '[' || c == ']' || c == '?' || c == '=' || c == '{' || c == '}':
			return false
		}
	}
	return true
}

// HandleDesired registers handle for changes of the twin's desired properties, which come in the
// order of their versions: first the complete properties, unless Options.DesiredVersion is theirs,
// then each change, once. It may be called
// at any time, also before Open. Another call replaces the handler, and the new one begins with the
// complete properties; nil removes it. Changes queued for the previous handler are discarded.
//
// Changes may not reach the device because it was disconnected, or because more than 8 came while
// handle was busy. The complete current properties then follow, with Full set. If reading the twin
// for that fails, it is read again, after 10 s at first and at most 10 minutes (Trace.TwinUnread).
// handle never gets an older version than before, except after a move to another hub (package
// dpstransport): versions begin anew there, and handle begins with the complete properties.
//
// A hub does not mark a notification as a change or as a replacement of all properties. So a
// property that a back end removes by replacing them all may survive on the device. Therefore each
// new connection after a change brings the complete properties again, with Full set, even if their
// version is known. Without a change it brings them only if their version differs. A device that
// needs them earlier reads the twin on each change (GetTwin). A removal with null takes effect at
// once.
//
// One goroutine at a time calls handle. handle may call the client's methods, but Close only in
// another goroutine. A panic is reported to Trace.HandlerPanic and counted; the change is not
// repeated. A client with a handler subscribes before each connection counts as Connected. Over a
// transport that is known to have no twins, HandleDesired fails with Unsupported. Where only the
// peer knows, Status.Err says so, and the connection stays.
func (c *Client) HandleDesired(handle DesiredHandler) error {
	if e := c.lacks(transport.FeatureDesired, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	t := c.twinFeature()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes == nil {
		t.changes = &desired{ctx: lifetime.New(), latest: c.set.DesiredVersion, latestValid: c.set.DesiredVersion > 0}
		if t.ended {
			t.changes.ctx.End()
		}
		t.changes.begin()
	} else {
		t.changes.resetForHandler()
	}
	t.changes.handle = handle
	c.poke()
	return nil
}
