package mqtt

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// The benchmarks compare a session with the library used by itself: QoS 1, 128 in flight, 100 bytes, over TCP on this machine to a responder that does
// nothing but acknowledge.
const (
	benchWindow = 128
	benchBody   = 100
)

func BenchmarkSession(b *testing.B) {
	addr := responder(b)
	k := &benchSink{free: make(chan uint16, benchWindow)}
	for i := range benchWindow {
		k.free <- uint16(i)
	}
	s, err := New(&Options{Plaintext: true, Addr: addr}).Dial(b.Context(), &transport.Config{Creds: testCreds(b), Window: benchWindow, Sink: k})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	m := &transport.Message{Body: make([]byte, benchBody)}
	batch := make([]transport.Item, 0, benchWindow)

	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; {
		batch = append(batch[:0], transport.Item{Tag: <-k.free, Msg: m})
		for len(batch) < left && len(k.free) > 0 {
			batch = append(batch, transport.Item{Tag: <-k.free, Msg: m})
		}
		s.Send(batch)
		left -= len(batch)
	}
	for range benchWindow {
		<-k.free
	}
	b.StopTimer()
	cancel()
	<-ran
}

// benchSink gives tags back.
type benchSink struct{ free chan uint16 }

func (k *benchSink) Done(tag uint16, _ error)         { k.free <- tag }
func (k *benchSink) Reply(uint32, transport.Reply)    {}
func (k *benchSink) Deliver(*transport.Delivery) bool { return false }

func BenchmarkLibraryAlone(b *testing.B) {
	o := paho.NewClientOptions().AddBroker("tcp://" + responder(b)).SetClientID("dev-1").SetProtocolVersion(4).SetKeepAlive(60 * time.Second)
	c := paho.NewClient(o)
	connected := c.Connect()
	connected.Wait()
	require.NoError(b, connected.Error())
	var ring [benchWindow]paho.Token
	body := make([]byte, benchBody)

	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
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
	b.StopTimer()
	c.Disconnect(250)
}

// responder accepts connections and acknowledges, without allocating.
func responder(b *testing.B) string {
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
