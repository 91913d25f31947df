package dpslean_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/faketime"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpslean"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// pieces is a Conn that reads a stream in pieces of size bytes.
type pieces struct {
	stream []byte
	size   int
	wrote  int
	closed int
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
	p.wrote += len(b)
	return len(b), nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }

func (p *pieces) Close() error {
	p.closed++
	return nil
}

func login() *provisioning.Login {
	return &provisioning.Login{Endpoint: "dps.example.test", IDScope: "0ne", RegistrationID: "reg-1",
		APIVersion: "2019-03-31", Timeout: time.Minute, Now: time.Now}
}

func carrier(conn lean.Conn) *dpslean.Carrier {
	return dpslean.New(func(context.Context, *provisioning.Login) (lean.Conn, error) { return conn, nil }, nil)
}

// play lets the service send a stream, and returns the answer to the first request.
func play(ctx context.Context, conn lean.Conn) (*provisioning.Answer, error) {
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
		require.Equal(t, 1, conn.closed)
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
		require.Equal(t, 1, whole.closed)
		require.Equal(t, 1, cut.closed)
		require.Equal(t, whole.wrote, cut.wrote)
		if err != nil {
			require.Equal(t, transport.Connection, transport.Find(err).Scope)
		}
	})
}

// endless is a service that never stops sending packets that answer nothing.
type endless struct {
	pieces
	then string
}

func (e *endless) Read(b []byte) (int, error) {
	if e.closed > 0 {
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
			bounded.Test(t, func(t *testing.T) {
				faketime.Start()
				began := time.Now()
				_, err := play(t.Context(), &endless{pieces{stream: []byte(s.first), size: 100}, s.then})
				require.ErrorIs(t, err, transport.Timeout)
				require.Less(t, time.Since(began), 61*time.Second)
			})
		})
	}
}
