package engine

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Protocol is a version of MQTT for Options.Protocol, made by MQTT5. It is a value and not a switch
// so that a linker drops what a board's program does not use.
type Protocol interface {
	// version checks the options and returns what one Transport needs.
	version(o *Options) (version, error)
}

// A version is what sessions do differently in a version of MQTT newer than 3.1.1. It belongs to
// one Transport and keeps its state between the connections of that.
type version interface {
	// begin prepares a connection. It may take over the token.
	begin(ctx context.Context, t *Transport, cfg *transport.Config, token *transport.Token, d dialect.Session) error
	// dialed returns the credentials of the host to connect to.
	dialed(creds *transport.Credentials, hello *dialect.Hello) *transport.Credentials
	// connect appends CONNECT.
	connect(dst []byte, g *mqttwire.Greeting, will dialect.Publication) ([]byte, error)
	// greeted handles the packet at the beginning of in, up to CONNACK, and returns its size; 0 if it
	// is incomplete. done is true behind the CONNACK.
	greeted(s *session, in []byte) (size int, done bool, err error)

	// next reads a packet's header and checks its size. It and handle run on the goroutine that reads.
	next(in []byte) (h mqttwire.Header, ok bool, err error)
	handle(s *session, h mqttwire.Header, body []byte) error
	// pass is session.passMessage.
	pass(s *session, to *mqttwire.Tap, flags byte, body []byte, fresh bool, waited time.Duration) error
	// goodbye is session.goodbye.
	goodbye(s *session, err error) []byte

	// read reads a PUBLISH and notes its id, for a pass that is not fresh. done is true if it was
	// received before. The message is valid until the next one is handled.
	read(s *session, h mqttwire.Header, body []byte) (topic []byte, m *transport.Message, done bool, err error)

	// prepare completes the shape of a PUBLISH, or returns an error about its message alone.
	// appendHead appends the PUBLISH of the latest prepare up to its payload. These and the following
	// run with the write side's token. They get values, because pointers would be allocated for each
	// message.
	prepare(s *session, p dialect.Publication, o outgoing) (outgoing, error)
	appendHead(s *session, dst []byte, id uint16, p dialect.Publication, o outgoing) []byte
	// appendSubscribe appends a SUBSCRIBE. The Kind belongs to the error.
	appendSubscribe(dst []byte, id uint16, filters []dialect.Filter) ([]byte, transport.Kind, error)
	// appendSettled appends the answer to an incoming PUBLISH, if there is one for the outcome.
	appendSettled(s *session, dst, ref []byte, outcome transport.Outcome) []byte
	// do does a request that is different in this version, and reports whether it is.
	do(s *session, r *transport.Request) bool

	// enter is session.enter for a session with several writers.
	enter(s *session) bool
	// end is called when the token of the write side is not given back and the connection is closed.
	// It waits for the goroutines of the session, and returns err as the error of Run, or nil if it is
	// the loss of a connection like others.
	end(err error) error
}
