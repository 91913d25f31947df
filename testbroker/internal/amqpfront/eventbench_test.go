package amqpfront_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// BenchmarkEventReader reads 20,000 events of 100 bytes over TCP. The client only counts frames, so
// the figure is that of the hub.
func BenchmarkEventReader(b *testing.B) {
	h, d, policy := newService(b, &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1}})
	at, err := h.Listen(testbroker.PortAMQP, "127.0.0.1:0")
	require.NoError(b, err)
	const n = 20_000
	fillEvents(b, h, d, n, 100)
	b.ReportAllocs()
	for b.Loop() {
		stream, err := net.Dial("tcp", at.String())
		require.NoError(b, err)
		p := &hubtest.RawPeer{T: b, Conn: stream}
		p.Open(nil)
		p.Say(0, &amqpwire.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 100, HandleMax: 1 << 30})
		hubtest.Want[*amqpwire.Begin](p)
		p.Attach(hubtest.SenderTo("$cbs", 100))
		p.Attach(hubtest.ReceiverFrom("$cbs", 101))
		p.Say(0, hubtest.Credit(101, 10))
		require.Equal(b, 200, p.Put(0, "put-token", hubtest.PolicyToken(policy, h.HostName())))
		p.Attach(hubtest.ReceiverFrom(address("$Default", "0"), 1))
		p.Say(0, &amqpwire.Flow{IncomingWindow: 1 << 30, OutgoingWindow: 100, Handle: amqpwire.Some(uint32(1)),
			LinkCredit: amqpwire.Some(uint32(n))})
		buf := make([]byte, 1<<18)
		in := p.In
		for left := n; left > 0; {
			m, err := stream.Read(buf)
			require.NoError(b, err)
			in = append(in, buf[:m]...)
			for {
				_, size, err := amqpwire.Split(in, 1<<20)
				require.NoError(b, err)
				if size == 0 {
					break
				}
				in = in[size:]
				left--
			}
		}
		require.NoError(b, stream.Close())
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
