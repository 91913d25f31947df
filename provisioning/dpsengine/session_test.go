package dpsengine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// pieces is a Conn that reads a stream in pieces of size bytes.
type pieces struct {
	stream []byte
	size   int
	first  []byte // what was written first
	wrote  int
	closed atomic.Int32
}

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b, p.stream[:min(p.size, len(p.stream))])
	p.stream = p.stream[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.first == nil {
		p.first = append(p.first, b...)
	}
	p.wrote += len(b)
	return len(b), nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }

func (p *pieces) Close() error {
	p.closed.Add(1)
	return nil
}

func login() *provisioning.Login {
	return &provisioning.Login{Endpoint: "dps.example.test", IDScope: "0ne", RegistrationID: "reg-1",
		APIVersion: "2019-03-31", Timeout: time.Minute, Now: time.Now}
}

func carrier(conn engine.Conn) *dpsengine.Carrier {
	return dpsengine.New(func(context.Context, *transport.Credentials) (engine.Conn, error) { return conn, nil }, nil)
}

// play lets the service send a stream, and returns the answer to the first request.
func play(ctx context.Context, conn engine.Conn) (*provisioning.Answer, error) {
	s, err := carrier(conn).Open(ctx, login())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Exchange(ctx, &provisioning.Request{Body: []byte("{}")})
}

const (
	hello = "\x20\x02\x00\x00\x90\x03\x00\x01\x01" // CONNACK and SUBACK
	topic = "$dps/registrations/res/200/?$rid=2"
)

// publish returns a PUBLISH of less than 128 bytes.
func publish(topic, body string) string {
	return "\x32" + string(rune(4+len(topic)+len(body))) + "\x00" + string(rune(len(topic))) + topic + "\x00\x07" + body
}

func TestTheAnswerIsFoundAmongOtherPackets(t *testing.T) {
	stream := hello + publish("x", "y") + "\x40\x02\x00\x02\xd0\x00" +
		publish("$dps/registrations/res/200/?$rid=1", "another") + publish(topic, "mine")
	for _, size := range []int{1, 2, 7, 1000} {
		conn := &pieces{stream: []byte(stream), size: size}
		a, err := play(t.Context(), conn)
		require.NoError(t, err)
		require.Equal(t, "mine", string(a.Body))
		require.Equal(t, 200, a.Status)
		require.EqualValues(t, 1, conn.closed.Load())
	}
}

// answering is a Conn of a service that sends the answers to lost requests before the right one.
type answering struct {
	pieces
	loses bool     // its first request gets no answer
	rids  []string // of all requests of the device, over all connections
}

func (a *answering) Write(b []byte) (int, error) {
	switch b[0] >> 4 {
	case 1: // CONNECT
		a.stream = append(a.stream, hello[:4]...)
	case 8: // SUBSCRIBE
		a.stream = append(a.stream, 0x90, 3, b[2], b[3], 1)
	case 3: // PUBLISH
		_, rid, _ := strings.Cut(string(b[:len(b)-4]), "$rid=") // without packet id and body
		a.rids = append(a.rids, rid)
		if a.loses {
			break
		}
		for i, rid := range a.rids {
			answer := publish("$dps/registrations/res/200/?$rid="+rid, strconv.Itoa(i))
			a.stream = append(a.stream, answer...)
		}
	}
	return len(b), nil
}

// The service may send the answer to a request whose connection was lost over the next connection.
func TestALateAnswerToALostConnectionIsIgnored(t *testing.T) {
	conn := &answering{pieces: pieces{size: 1000}, loses: true}
	c := carrier(conn)
	s, err := c.Open(t.Context(), login())
	require.NoError(t, err)
	_, err = s.Exchange(t.Context(), &provisioning.Request{Body: []byte("{}")})
	require.ErrorIs(t, err, transport.Network)
	s.Close()
	conn.loses = false
	s, err = c.Open(t.Context(), login())
	require.NoError(t, err)
	defer s.Close()
	for i := range 3 {
		a, err := s.Exchange(t.Context(), &provisioning.Request{Call: "report", Body: []byte("{}")})
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(i+1), string(a.Body), "%v", conn.rids)
	}
}

// The service cuts a connection that is silent for one and a half times the keep-alive, and a
// session is silent as long as it waits for an answer.
func TestTheKeepAliveCoversTheTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]int{
		time.Second: 60, time.Minute: 60, 5*time.Minute + 500*time.Millisecond: 300, time.Hour: 1177, 1<<63 - 1: 1177,
	} {
		conn := &pieces{stream: []byte(hello), size: 100}
		l := login()
		l.Timeout = timeout
		s, err := carrier(conn).Open(t.Context(), l)
		require.NoError(t, err)
		s.Close()
		at := strings.Index(string(conn.first), "MQTT\x04") + 6
		require.Equal(t, want, int(conn.first[at])<<8|int(conn.first[at+1]), timeout)
	}
}

// FuzzSession lets the service send any stream. The split into pieces makes no difference, and the
// connection is closed.
func FuzzSession(f *testing.F) {
	f.Add([]byte(hello+publish(topic, "{}")), 3)
	f.Add([]byte(hello+"\x40\x02\x00\x02"+publish("$dps/registrations/res/429/?$rid=2&retry-after=5", "")), 1)
	f.Add([]byte("\x20\x02\x00\x05"), 2)
	f.Add([]byte(hello+"\x30\xff\xff\xff\x7f"), 4)
	f.Add([]byte(hello+"\x34\x02\x00\x00"), 4)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || len(stream) > 4096 {
			return
		}
		whole, cut := &pieces{stream: stream, size: 1 << 20}, &pieces{stream: stream, size: size}
		a, err := play(t.Context(), whole)
		b, errCut := play(t.Context(), cut)
		require.Equal(t, a, b)
		require.Equal(t, err, errCut)
		require.EqualValues(t, 1, whole.closed.Load())
		require.EqualValues(t, 1, cut.closed.Load())
		require.Equal(t, whole.wrote, cut.wrote)
		if err != nil {
			require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
		}
	})
}

// endless is a service that never stops sending packets that answer nothing.
type endless struct {
	pieces
	then string
}

func (e *endless) Read(b []byte) (int, error) {
	if e.closed.Load() > 0 {
		return 0, net.ErrClosed
	}
	if len(e.stream) == 0 {
		time.Sleep(10 * time.Millisecond)
		e.stream = []byte(e.then)
	}
	return e.pieces.Read(b)
}

// A service that talks without answering does not hold up the device beyond the time-out.
func TestAServiceThatTalksWithoutAnswering(t *testing.T) {
	for name, s := range map[string]struct{ first, then string }{
		"before SUBACK": {"\x20\x02\x00\x00", publish("x", "y")},
		"after it":      {hello, publish("$dps/registrations/res/200/?$rid=77", "y")},
		"pings":         {hello, "\xd0\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				began := time.Now()
				_, err := play(t.Context(), &endless{pieces: pieces{stream: []byte(s.first), size: 100}, then: s.then})
				require.ErrorIs(t, err, transport.Timeout)
				require.Less(t, time.Since(began), 61*time.Second)
			})
		})
	}
}

func TestADialThatReturnsNothing(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		_, err := carrier(nil).Open(t.Context(), login())
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "dial function")
		time.Sleep(time.Hour)
	})
}

// crashing is a connection of a driver with a bug.
type crashing struct{ pieces }

func (*crashing) Write([]byte) (int, error) { panic("driver") }

// A driver that panics leaves neither a connection nor a goroutine.
func TestAConnectionThatPanics(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		conn := &crashing{}
		c, err := provisioning.New(&provisioning.Identity{IDScope: "0ne", RegistrationID: "reg-1"}, carrier(conn),
			&provisioning.Options{Policy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorContains(t, err, "driver")
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, conn.closed.Load())
	})
}

// spacious is a Conn that notes the space for each read.
type spacious struct {
	pieces
	space []int
}

func (s *spacious) Read(b []byte) (int, error) {
	s.space = append(s.space, len(b))
	return s.pieces.Read(b)
}

// hasty is a service that resets the connection behind its answer.
type hasty struct{ pieces }

func (h *hasty) Write(b []byte) (int, error) {
	if b[0]>>4 == byte(mqttwire.Puback) {
		return 0, net.ErrClosed
	}
	return h.pieces.Write(b)
}

func TestAnAnswerBeforeAResetCounts(t *testing.T) {
	a, err := play(t.Context(), &hasty{pieces{stream: []byte(hello + publish(topic, "mine")), size: 100}})
	require.NoError(t, err)
	require.Equal(t, "mine", string(a.Body))
}

// The buffer for a large packet does not stay: small packets would each move a large rest.
func TestALargePacketLeavesNoLargeBuffer(t *testing.T) {
	const size = 100 << 10
	large := "\x30\x80\xa0\x06\x00\x01x" + strings.Repeat("a", size-3)
	conn := &spacious{pieces: pieces{stream: []byte(hello + large + publish(topic, "{}")), size: 1 << 20}}
	_, err := play(t.Context(), conn)
	require.NoError(t, err)
	require.Greater(t, slices.Max(conn.space), size/2)
	require.LessOrEqual(t, conn.space[len(conn.space)-1], 1<<10)
}

// What a broken or refusing service sends ends the session, with the Kind that fits.
func TestServicesThatRefuseOrAreBroken(t *testing.T) {
	for name, row := range map[string]struct {
		stream string
		kind   transport.Kind
		code   byte // of a *engine.ConnackError
		text   string
	}{
		"refused token":          {"\x20\x02\x00\x05", transport.Unauthorized, 5, ""},
		"busy":                   {"\x20\x02\x00\x03", transport.Unavailable, 3, ""},
		"not MQTT":               {"HTTP/1.1 400 Bad Request\r\n\r\n", transport.Protocol, 0, "check host and port"},
		"no CONNACK":             {"\x90\x03\x00\x01\x01", transport.Protocol, 0, "check host and port"},
		"refused subscription":   {"\x20\x02\x00\x00\x90\x03\x00\x01\x80", transport.Unavailable, 0, ""},
		"SUBACK of another":      {"\x20\x02\x00\x00\x90\x03\x00\x02\x01", transport.Protocol, 0, "answers no SUBSCRIBE"},
		"SUBACK for two filters": {"\x20\x02\x00\x00\x90\x04\x00\x01\x01\x01", transport.Protocol, 0, "answers no SUBSCRIBE"},
		"QoS 2":                  {hello + "\x34\x05\x00\x01x\x00\x07", transport.Protocol, 0, "QoS above 1"},
		"a second CONNACK":       {hello + "\x20\x02\x00\x00", transport.Protocol, 0, "type 2"},
		"longer than any answer": {hello + "\x30\x81\x80\x09", transport.Protocol, 0, "of 147457 bytes"},
		"the end":                {hello, transport.Network, 0, "closed the connection"},
	} {
		conn := &pieces{stream: []byte(row.stream), size: 100}
		_, err := play(t.Context(), conn)
		require.ErrorIs(t, err, row.kind, name)
		require.ErrorContains(t, err, row.text, name)
		if refusal, ok := errors.AsType[*engine.ConnackError](err); ok || row.code != 0 {
			require.Equal(t, row.code, refusal.Code, name)
		}
		require.EqualValues(t, 1, conn.closed.Load(), name)
	}
}

// An answer with QoS 1 is acknowledged, one with QoS 0 is not.
func TestAnswersAreAcknowledged(t *testing.T) {
	acknowledged := &pieces{stream: []byte(hello + publish(topic, "{}")), size: 100}
	_, err := play(t.Context(), acknowledged)
	require.NoError(t, err)
	plain := &pieces{stream: []byte(hello + "\x30" + string(rune(2+len(topic)+2)) + "\x00" + string(rune(len(topic))) +
		topic + "{}"), size: 100}
	_, err = play(t.Context(), plain)
	require.NoError(t, err)
	require.Equal(t, plain.wrote+4, acknowledged.wrote)
}
