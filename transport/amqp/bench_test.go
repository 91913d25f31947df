package amqp_test

import (
	"context"
	"testing"

	raw "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// benchWindow is how many messages are in flight.
const benchWindow = 128

// counter is a sink whose tags are the places of the window.
type counter struct {
	tags chan uint16
	t    testing.TB
}

func (c *counter) Done(tag uint16, err error) {
	if err != nil {
		c.t.Error(err)
	}
	c.tags <- tag
}
func (c *counter) Reply(uint32, transport.Reply)    {}
func (c *counter) Deliver(*transport.Delivery) bool { return false }

// Telemetry over an in-memory network: 100 bytes, 128 in flight, including the work of the hub.
func BenchmarkTelemetry(b *testing.B) {
	for name, batch := range map[string]int{"batches": 0, "alone": 1} {
		b.Run(name, func(b *testing.B) {
			h := newHub(b)
			o := h.options()
			o.Batch = batch
			k := &counter{make(chan uint16, benchWindow), b}
			ctx, cancel := context.WithCancel(b.Context())
			s, err := amqp.New(o).Dial(ctx, &transport.Config{Creds: h.CredsWith(b, ""), Window: benchWindow, Queue: 8, Sink: k})
			require.NoError(b, err)
			over := make(chan struct{})
			go func() {
				_ = s.Run(ctx)
				close(over)
			}()
			for tag := range benchWindow {
				k.tags <- uint16(tag)
			}
			m := &transport.Message{Body: make([]byte, 100)}
			items := make([]transport.Item, 0, benchWindow)
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; sent += len(items) {
				items = append(items[:0], transport.Item{Tag: <-k.tags, Msg: m})
				for more := true; more && len(items) < 64 && sent+len(items) < b.N; {
					select {
					case tag := <-k.tags:
						items = append(items, transport.Item{Tag: tag, Msg: m})
					default:
						more = false
					}
				}
				s.Send(items)
			}
			for range benchWindow {
				<-k.tags
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			cancel()
			<-over
		})
	}
}

// The bare library, with receipts, for comparison.
func BenchmarkLibrary(b *testing.B) {
	h := newHub(b)
	token, err := h.CredsWith(b, "").NewToken(b.Context())
	require.NoError(b, err)
	stream, err := h.Dial(testbroker.PortAMQP)(b.Context(), "", "")
	require.NoError(b, err)
	conn, err := raw.NewConn(b.Context(), stream, &raw.ConnOptions{HostName: h.HostName(),
		SASLType: raw.SASLTypePlain("dev-1@sas.hub", token.Text.Reveal())})
	require.NoError(b, err)
	defer conn.Close()
	session, err := conn.NewSession(b.Context(), nil)
	require.NoError(b, err)
	sender, err := session.NewSender(b.Context(), "/devices/dev-1/messages/events", nil)
	require.NoError(b, err)
	receipts := make(chan raw.SendReceipt, benchWindow-1)
	done := make(chan error, 1)
	go func() {
		for r := range receipts {
			if _, err := r.Wait(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	m := raw.NewMessage(make([]byte, 100))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r, err := sender.SendWithReceipt(b.Context(), m, nil)
		require.NoError(b, err)
		receipts <- r
	}
	close(receipts)
	require.NoError(b, <-done)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
