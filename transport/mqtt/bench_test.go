package mqtt

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The benchmarks compare a session with the bare library: QoS 1, 128 in flight, 100 bytes, over TCP
// on this machine, to a responder that only acknowledges and to testbroker, which keeps every
// message.
const (
	benchWindow = 128
	benchBody   = 100
)

func BenchmarkSession(b *testing.B)      { benchmark(b, throughSession) }
func BenchmarkLibraryAlone(b *testing.B) { benchmark(b, throughLibrary) }

func benchmark(b *testing.B, through sender) {
	b.Run("responder", func(b *testing.B) {
		send := through(b, responder(b), testCreds(b))
		b.ReportAllocs()
		b.ResetTimer()
		send(b.N)
	})
	b.Run("hub", func(b *testing.B) {
		send := through(benchHub(b))
		b.ReportAllocs()
		b.ResetTimer()
		send(b.N)
	})
}

// A session allocates no more for a message than the bare library.
func TestAMessageAllocatesNoMoreThanWithTheLibraryAlone(t *testing.T) {
	addr, creds := responder(t), testCreds(t)
	perMessage := func(through sender) float64 {
		const n = 5000
		send := through(t, addr, creds)
		send(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		send(n)
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / n
	}
	ours, alone := perMessage(throughSession), perMessage(throughLibrary)
	t.Logf("session %.2f, library alone %.2f allocations per message", ours, alone)
	require.LessOrEqual(t, ours, alone)
}

// A sender connects and returns a function that sends n messages and waits for their results.
type sender func(t testing.TB, addr string, creds *transport.Credentials) (send func(n int))

func benchHub(b *testing.B) (testing.TB, string, *transport.Credentials) {
	h, err := testbroker.New(nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = h.Close() })
	dev, err := h.AddDevice("dev-1")
	require.NoError(b, err)
	addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(b, err)
	return b, addr.String(), credsOf(b, dev, dev.PrimaryKey)
}

func throughSession(t testing.TB, addr string, creds *transport.Credentials) func(n int) {
	k := &benchSink{free: make(chan uint16, benchWindow)}
	for i := range benchWindow {
		k.free <- uint16(i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(&Options{Network: netopt.Options{Plaintext: true, Addr: addr}}).Dial(ctx, &transport.Config{Creds: creds,
		Window: benchWindow,
		Sink:   k})
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	m := &transport.Message{Body: make([]byte, benchBody)}
	batch := make([]transport.Item, 0, benchWindow)
	return func(n int) {
		for left := n; left > 0; {
			batch = append(batch[:0], transport.Item{Tag: <-k.free, Msg: m})
			for len(batch) < left && len(k.free) > 0 {
				batch = append(batch, transport.Item{Tag: <-k.free, Msg: m})
			}
			s.Send(batch)
			left -= len(batch)
		}
		var all [benchWindow]uint16
		for i := range all {
			all[i] = <-k.free
		}
		for _, tag := range all {
			k.free <- tag
		}
	}
}

// benchSink returns tags to the sender.
type benchSink struct{ free chan uint16 }

func (k *benchSink) Done(tag uint16, _ error)         { k.free <- tag }
func (k *benchSink) Reply(uint32, transport.Reply)    {}
func (k *benchSink) Deliver(*transport.Delivery) bool { return false }

func throughLibrary(t testing.TB, addr string, creds *transport.Credentials) func(n int) {
	token, err := creds.NewToken(t.Context())
	require.NoError(t, err)
	o := paho.NewClientOptions().AddBroker("tcp://" + addr).SetClientID("dev-1").SetProtocolVersion(4).SetKeepAlive(
		60 * time.Second)
	o.SetUsername(helloOf(t, nil, creds).UserName).SetPassword(token.Text.Reveal())
	c := paho.NewClient(o)
	connected := c.Connect()
	connected.Wait()
	require.NoError(t, connected.Error())
	t.Cleanup(func() { c.Disconnect(250) })
	body := make([]byte, benchBody)
	return func(n int) {
		var ring [benchWindow]paho.Token
		for i := range n {
			if t := ring[i%benchWindow]; t != nil {
				t.Wait()
			}
			ring[i%benchWindow] = c.Publish("devices/dev-1/messages/events/", 1, false, body)
		}
		for _, t := range ring {
			if t != nil {
				t.Wait()
			}
		}
	}
}

// responder accepts connections and acknowledges without allocating.
func responder(b testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go respond(c) // ends with the connection
		}
	}()
	return l.Addr().String()
}

func respond(c net.Conn) {
	defer func() { _ = c.Close() }()
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 4<<10)
	head := make([]byte, 256)
	for {
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
		first, err := r.ReadByte()
		if err != nil {
			return
		}
		size, err := binary.ReadUvarint(r)
		if err != nil {
			return
		}
		n := min(int(size), len(head))
		if _, err := io.ReadFull(r, head[:n]); err != nil {
			return
		}
		if _, err := r.Discard(int(size) - n); err != nil {
			return
		}
		switch first >> 4 {
		case 1:
			_, _ = w.Write([]byte{typeConnack << 4, 2, 0, 0})
		case typePublish:
			at := 2 + binary.BigEndian.Uint16(head)
			_ = w.WriteByte(typePuback << 4)
			_ = w.WriteByte(2)
			_ = w.WriteByte(head[at])
			_ = w.WriteByte(head[at+1])
		case 12:
			_, _ = w.Write([]byte{typePingresp << 4, 0})
		}
	}
}
