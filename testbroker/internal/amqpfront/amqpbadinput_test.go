package amqpfront_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// dialers open AMQP connections to the hub in a bubble.
var dialers = map[string]func(t testing.TB, h *testbroker.Hub) net.Conn{
	"memory": func(t testing.TB, h *testbroker.Hub) net.Conn {
		c := hubtest.DialPort(t, h, testbroker.PortAMQP)
		return c
	},
	"TLS": func(t testing.TB, h *testbroker.Hub) net.Conn {
		c := hubtest.DialPort(t, h, testbroker.PortAMQPS)
		config := h.ClientTLS()
		config.ServerName = h.HostName()
		return tls.Client(c, config)
	},
}

// neighbour is a well-behaved device on its own connection.
type neighbour struct {
	*hubtest.RawPeer
	id, sent uint32
}

func newNeighbour(t testing.TB, h *testbroker.Hub) *neighbour {
	d := hubtest.AddDevice(t, h, "neighbour")
	n := &neighbour{RawPeer: hubtest.DialFrames(t, h), id: 10}
	n.Login(d)
	n.Attach(hubtest.SenderTo("/devices/neighbour/messages/events", 1))
	n.Attach(hubtest.ReceiverFrom("/devices/neighbour/messages/devicebound", 2))
	n.Say(0, hubtest.Credit(2, 1000))
	return n
}

// works sends a message and receives a C2D message.
func (n *neighbour) works(h *testbroker.Hub) {
	n.T.Helper()
	n.id++
	n.Say(0, hubtest.TransferOf(1, n.id), hubtest.DataOf(n.T, "x")...)
	disposition, _ := hubtest.Want[*amqpwire.Disposition](n.RawPeer)
	require.Equal(n.T, &amqpwire.Accepted{}, disposition.State)
	require.NoError(n.T, h.SendC2D("neighbour", hubdata.C2D{Body: []byte("y")}))
	got, _ := hubtest.Want[*amqpwire.Transfer](n.RawPeer)
	n.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: got.DeliveryID.V, Settled: true,
		State: &amqpwire.Accepted{}})
	synctest.Wait()
	n.sent++
	require.EqualValues(n.T, n.sent, h.CountC2D("neighbour", hubdata.C2DCompleted))
}

// alive sends keep-alives for the neighbour until stop is closed.
func (n *neighbour) alive(stop chan struct{}) {
	for {
		select {
		case <-time.After(20 * time.Second):
			n.Conn.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		case <-stop:
			return
		}
	}
}

// badInput is a client's misbehaviour and the hub's reaction.
type badInput struct {
	login bool // log in first
	do    func(p *hubtest.RawPeer)
	// closes is the condition of the close; empty: the connection ends without a close. header is the
	// protocol header that the hub sends last instead.
	closes amqpwire.Symbol
	header []byte
	// within is the time limit of the reaction.
	within time.Duration
}

func badInputs() map[string]badInput {
	raw := func(s string) func(p *hubtest.RawPeer) { return func(p *hubtest.RawPeer) { write(p, []byte(s)) } }
	leave := func(s string) func(p *hubtest.RawPeer) {
		return func(p *hubtest.RawPeer) {
			write(p, []byte(s))
			p.Conn.Close()
		}
	}
	plain, sasl := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP), amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
	frame := func(p amqpwire.Performative) []byte {
		b, err := amqpwire.AppendFrame(nil, 0, p, nil)
		if err != nil {
			panic(err)
		}
		return b
	}
	initFrame := frame(&amqpwire.Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00a\x00b")})
	openFrame := frame(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512})
	drip := func(all []byte, every time.Duration) func(p *hubtest.RawPeer) {
		return func(p *hubtest.RawPeer) {
			for i := 0; write(p, all[i%len(all):i%len(all)+1]) && i < 100_000; i++ {
				time.Sleep(every)
			}
		}
	}
	long := make([]byte, 60_000)
	binary.BigEndian.PutUint32(long, uint32(len(long)))
	long[4] = 2

	all := map[string]badInput{
		// Half a handshake, then silence.
		"nothing":                   {within: time.Minute},
		"half a header":             {do: raw("AMQP\x03"), within: time.Minute},
		"header of SASL":            {do: raw(string(sasl[:])), within: time.Minute},
		"half an init":              {do: raw(string(sasl[:]) + string(initFrame[:20])), within: time.Minute},
		"header of AMQP":            {do: raw(string(plain[:])), within: time.Minute},
		"half an open":              {do: raw(string(plain[:]) + string(openFrame[:10])), within: time.Minute},
		"the outcome is not waited": {do: raw(string(sasl[:]) + string(initFrame)), within: time.Minute},
		"leaves at once":            {do: leave("")},
		"leaves in a header":        {do: leave("AMQP\x03")},
		"leaves after a header":     {do: leave(string(plain[:]))},
		"leaves in a TLS record":    {do: leave("\x16\x03\x01\x00\x00")},
		"leaves in an init":         {do: leave(string(sasl[:]) + string(initFrame[:20]))},
		// Slow loris: single bytes at intervals, without end.
		"headers dripping in": {do: drip([]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}, 9*time.Second),
			within: 62 * time.Second},
		"an init dripping in": {do: drip(append(sasl[:], long...), time.Second), within: 62 * time.Second,
			closes: ""},
		"an open dripping in": {do: drip(append(plain[:], openFrame[:len(openFrame)-1]...), 2*time.Second),
			within: 62 * time.Second},
		"a frame dripping in": {login: true, do: drip(long, time.Second), closes: amqpwire.ResourceLimitExceeded,
			within: 122 * time.Second},
		"a header of a frame that drips": {login: true, do: drip([]byte{0, 0, 0xff, 0}, 50*time.Second),
			closes: amqpwire.ResourceLimitExceeded, within: 122 * time.Second},
		"bytes of many frames of nonsense": {login: true, do: drip([]byte{0, 0, 0, 8, 2, 7, 0, 0}, time.Second),
			closes: amqpwire.FramingError, within: 20 * time.Second},
		// Garbage.
		"TLS within":      {do: raw("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), header: sasl[:]},
		"MQTT":            {do: raw("\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"), header: sasl[:]},
		"AMQP 0-9-1":      {do: raw("AMQP\x00\x00\x09\x01"), header: sasl[:]},
		"TLS in band":     {do: raw("AMQP\x02\x01\x00\x00"), header: sasl[:]},
		"HTTP":            {do: raw("GET / HTTP/1.1\r\n"), header: sasl[:]},
		"no init":         {do: raw(string(sasl[:]) + "\x00\x00\x00\x08\x02\x01\x00\x00")},
		"open of 4 B":     {do: raw(string(plain[:]) + "\x00\x00\x00\x04"), closes: amqpwire.FramingError},
		"an empty init":   {do: raw(string(sasl[:]) + "\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x41\x45")},
		"a frame of 4 GB": {login: true, do: raw("\xff\xff\xff\xff\x02\x00\x00\x00"), closes: amqpwire.FramingError},
		"a frame of 0 B":  {login: true, do: raw("\x00\x00\x00\x00\x02\x00\x00\x00"), closes: amqpwire.FramingError},
		"SASL twice": {do: raw(string(sasl[:]) + string(frame(&amqpwire.Init{Mechanism: "MSSBCBS"})) + string(sasl[:])),
			header: plain[:]},
		"open of 4 GB": {do: raw(string(plain[:]) + "\xff\xff\xff\xff\x02\x00\x00\x00"),
			closes: amqpwire.FramingError},
		"init of 4 GB": {do: raw(string(sasl[:]) + "\xff\xff\xff\xff\x02\x01\x00\x00")},
		"a list of 2^31": {login: true, do: raw(
			"\x00\x00\x00\x14\x02\x00\x00\x00\x00\x53\x12\xd0\x00\x00\x00\x04\x7f\xff\xff\xff"), closes: amqpwire.DecodeError},
		"an array of 2^31": {login: true, do: raw(
			"\x00\x00\x00\x15\x02\x00\x00\x00\x00\x53\x12\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40"),
			closes: amqpwire.DecodeError},
		"lists without end": {login: true, do: raw("\x00\x00\x00\x6c\x02\x00\x00\x00\x00\x53\x12" +
			strings.Repeat("\xc0\x10\x01", 32) + "\x40"), closes: amqpwire.DecodeError},
		"text that is none": {login: true, do: raw(
			"\x00\x00\x00\x13\x02\x00\x00\x00\x00\x53\x12\xc0\x06\x01\xa1\x03\xff\xfe\xfd"), closes: amqpwire.DecodeError},
		"a frame of SASL":    {login: true, do: raw("\x00\x00\x00\x08\x02\x01\x00\x00"), closes: amqpwire.FramingError},
		"a header once more": {login: true, do: raw(string(plain[:])), closes: amqpwire.FramingError},
		"an open once more":  {login: true, do: raw(string(openFrame)), closes: amqpwire.IllegalState},
		"a close before open": {do: func(p *hubtest.RawPeer) {
			write(p, plain[:])
			write(p, frame(&amqpwire.Close{}))
		}, closes: amqpwire.IllegalState},
		// Floods.
		"attaches of nobody": {do: func(p *hubtest.RawPeer) {
			all := append(append(plain[:], openFrame...), frame(hubtest.BeginOf(100))...)
			for i := range uint32(200) {
				all = append(all, frame(hubtest.SenderTo(hubtest.TelemetryAddress, i))...)
			}
			write(p, all)
		}, closes: amqpwire.ResourceLimitExceeded},
		"messages without end on many links": {login: true, do: func(p *hubtest.RawPeer) {
			var all []byte
			for i := range uint32(70) {
				a := hubtest.SenderTo(hubtest.TelemetryAddress, i)
				a.Name += string(rune('a' + i))
				all, _ = amqpwire.AppendFrame(all, 0, a, nil)
				x := hubtest.TransferOf(i, 10+i)
				x.More = true
				all, _ = amqpwire.AppendFrame(all, 0, x, make([]byte, 1000))
			}
			write(p, all)
		}, closes: amqpwire.ResourceLimitExceeded},
	}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 0))
		junk := make([]byte, 20_000)
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		junk[0] = 0x80 // no frame is that long
		all["junk "+string(rune('0'+seed))] = badInput{login: true,
			do: func(p *hubtest.RawPeer) { write(p, junk) }, closes: amqpwire.FramingError}
		all["junk at once "+string(rune('0'+seed))] = badInput{do: func(p *hubtest.RawPeer) {
			write(p, junk)
		}, header: sasl[:]}
	}
	return all
}

// write sends bytes and reports whether the hub still accepts them.
func write(p *hubtest.RawPeer, b []byte) bool {
	_, err := p.Conn.Write(b)
	return err == nil
}

// For any bad input, the hub ends the connection in time with the right condition, and another
// device is not affected.
func TestAMQPBadInput(t *testing.T) {
	for way, dial := range dialers {
		for name, c := range badInputs() {
			hubtest.RunBubble(t, way+"/"+name, func(t *testing.T) {
				h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{IdleTimeout: time.Minute}})
				n := newNeighbour(t, h)
				n.works(h)
				stop := make(chan struct{})
				var neighbour, others sync.WaitGroup
				neighbour.Go(func() { n.alive(stop) })

				p := &hubtest.RawPeer{T: t, Conn: dial(t, h)}
				if c.login {
					p.Login(d)
				} else if s, ok := p.Conn.(*tls.Conn); ok {
					require.NoError(t, s.Handshake())
				}
				start := time.Now()
				if c.do != nil {
					others.Go(func() { c.do(p) })
				}
				said, err := rest(p)
				require.LessOrEqual(t, time.Since(start), max(c.within, time.Second))
				switch {
				case c.header != nil:
					require.NoError(t, err)
					require.True(t, bytes.HasSuffix(said, c.header), "%x", said)
				case c.closes != "":
					last := lastFrame(t, said)
					require.IsType(t, &amqpwire.Close{}, last)
					require.NotNil(t, last.(*amqpwire.Close).Error)
					require.Equal(t, c.closes, last.(*amqpwire.Close).Error.Condition)
				}
				p.Conn.Close()
				others.Wait() // up to an idle timeout of the neighbour
				close(stop)
				neighbour.Wait()
				synctest.Wait()
				require.Equal(t, 1, h.Connections(""))
				n.works(h)
			})
		}
	}
}

// rest reads the hub's output to the end. The error is that of a reset, which may come during it.
func rest(p *hubtest.RawPeer) ([]byte, error) {
	p.T.Helper()
	b, err := io.ReadAll(p.Conn)
	var late net.Error
	require.False(p.T, errors.As(err, &late) && late.Timeout(), "%v", err)
	return append(p.In, b...), err
}

// lastFrame returns the last frame of the output, without protocol headers.
func lastFrame(t *testing.T, said []byte) (last amqpwire.Performative) {
	t.Helper()
	for len(said) > 0 {
		if bytes.HasPrefix(said, []byte("AMQP")) {
			said = said[8:]
			continue
		}
		f, n, err := amqpwire.Split(said, 1<<20)
		require.NoError(t, err)
		require.NotZero(t, n, "%x", said)
		if len(f.Body) > 0 {
			last, _, err = f.Performative()
			require.NoError(t, err)
		}
		said = said[n:]
	}
	return last
}

// Strange conditions from clients have no unexpected effect.
func TestStrangeConditions(t *testing.T) {
	for _, condition := range []amqpwire.Symbol{"", "x", "amqp:", "com.example:\x7f",
		amqpwire.Symbol(strings.Repeat("long", 2000)),
		"%s%n%!", "amqp:link:detach-forced"} {
		hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			e := &amqpwire.Error{Condition: condition, Description: strings.Repeat("\x00é", 1000),
				Info: amqpwire.Map{{Key: amqpwire.Symbol("k"), Value: amqpwire.List{nil, uint8(1)}}}}
			p := hubtest.DialFrames(t, h)
			p.Login(d)
			p.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1))
			p.Say(0, hubtest.Credit(1, 10))
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
			got, _ := hubtest.Want[*amqpwire.Transfer](p)
			p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: got.DeliveryID.V, Settled: true,
				State: &amqpwire.Rejected{Error: e}})
			synctest.Wait()
			require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DRejected))
			p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true, Error: e})
			detach, _ := hubtest.Want[*amqpwire.Detach](p)
			require.Nil(t, detach.Error)
			p.Say(0, &amqpwire.End{Error: e})
			hubtest.Want[*amqpwire.End](p)
			p.Say(0, &amqpwire.Close{Error: e})
			hubtest.Want[*amqpwire.Close](p)
			require.ErrorIs(t, p.Ended(), io.EOF)
		})
	}
}

// The hub's memory for a client that does not read is bounded.
func TestWhatIsKeptForAClientIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		window uint32
		mode   uint8
	}{"window": {0, amqpwire.SendMixed}, "settlement": {1 << 30, amqpwire.SendUnsettled}} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			n := newNeighbour(t, h)
			p := hubtest.DialFrames(t, h)
			p.Open(nil)
			p.Say(0, &amqpwire.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 100, HandleMax: 255})
			hubtest.Want[*amqpwire.Begin](p)
			p.Attach(hubtest.SenderTo("$cbs", 100))
			in := hubtest.ReceiverFrom("$cbs", 101)
			in.SndSettleMode = c.mode
			p.Say(0, in)
			hubtest.Want[*amqpwire.Attach](p)
			all := hubtest.Credit(101, 1<<30)
			all.IncomingWindow = c.window
			p.Say(0, all)
			request := func(id uint32) []byte {
				m := hubtest.Encoded(t, &amqpwire.Message{
					Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: hubtest.Token(d), HasValue: true,
					ApplicationProperties: amqpwire.Map{{Key: "operation", Value: "put-token"},
						{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
				})
				b, err := amqpwire.AppendFrame(nil, 0, hubtest.TransferOf(100, id), m)
				require.NoError(t, err)
				return b
			}
			detached := false
			for id := uint32(1); id < 20_000 && !detached; id++ {
				p.Send(request(id))
				if id%100 == 0 {
					synctest.Wait()
					for !detached && (len(p.In) > 0 || p.Readable()) {
						f, err := p.Next()
						require.NoError(t, err)
						if end, ok := f.Body.(*amqpwire.Detach); ok {
							require.EqualValues(t, 101, end.Handle)
							require.Equal(t, amqpwire.ResourceLimitExceeded, end.Error.Condition)
							detached = true
						}
					}
				}
			}
			require.True(t, detached)
			n.works(h)
		})
	}
}

// Messages that wait for the client's window or settlement are sent when it allows them.
func TestWhatWaitedGoesOn(t *testing.T) {
	for name, mode := range map[string]uint8{"window": amqpwire.SendMixed, "settlement": amqpwire.SendUnsettled} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.DialFrames(t, h)
			p.Open(nil)
			p.Say(0, &amqpwire.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 100, HandleMax: 255})
			hubtest.Want[*amqpwire.Begin](p)
			p.Attach(hubtest.SenderTo("$cbs", 100))
			in := hubtest.ReceiverFrom("$cbs", 101)
			in.SndSettleMode = mode
			p.Say(0, in)
			hubtest.Want[*amqpwire.Attach](p)
			all := hubtest.Credit(101, 1<<30)
			all.IncomingWindow = 1 << 30
			if mode == amqpwire.SendMixed {
				all.IncomingWindow = 0
			}
			p.Say(0, all)
			const n = 4500 // more than the queue limit of a session, less than with the answers that wait on the link
			answers := 0
			read := func() {
				synctest.Wait()
				for len(p.In) > 0 || p.Readable() {
					f, err := p.Next()
					require.NoError(t, err)
					if _, ok := f.Body.(*amqpwire.Transfer); ok {
						answers++
					}
				}
			}
			for id := uint32(1); id <= n; id++ {
				p.Say(0, hubtest.TransferOf(100, id), hubtest.Encoded(t, &amqpwire.Message{
					Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: hubtest.Token(d), HasValue: true,
					ApplicationProperties: amqpwire.Map{{Key: "operation", Value: "put-token"},
						{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
				})...)
				if id%200 == 0 {
					read()
				}
			}
			read()
			require.Less(t, answers, n)
			if mode == amqpwire.SendMixed {
				p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(0)), IncomingWindow: 1 << 30})
			} else {
				p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: 0, Last: amqpwire.Some(uint32(n)),
					Settled: true, State: &amqpwire.Accepted{}})
			}
			read()
			require.Equal(t, n, answers)
		})
	}
}

// A hundred peers over real TLS abort the handshake or send garbage. No goroutine or memory
// remains.
func TestAMQPBadInputLeavesNothingBehind(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	addr := hubtest.Listen(t, h, testbroker.PortAMQPS)
	plain, sasl := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP), amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
	inputs := [][]byte{nil, []byte("GET / HTTP/1.1\r\n\r\n"), sasl[:], plain[:], append(plain[:], 0xff, 0xff, 0xff, 0xff),
		append(sasl[:], 0, 0, 0, 40, 2, 1, 0, 0, 0x40), make([]byte, 100_000)}
	round := func() {
		var peers sync.WaitGroup
		for _, input := range inputs {
			for _, secure := range []bool{true, false} {
				peers.Go(func() {
					raw, err := net.Dial("tcp", addr.String())
					if err != nil {
						t.Error(err)
						return
					}
					defer raw.Close()
					c := raw
					if secure {
						config := h.ClientTLS()
						config.ServerName = h.HostName()
						c = tls.Client(raw, config)
					}
					c.SetDeadline(time.Now().Add(10 * time.Second))
					c.Write(input) // the connection may be cut
					c.SetDeadline(time.Now().Add(50 * time.Millisecond))
					io.Copy(io.Discard, c)
				})
			}
		}
		peers.Wait()
		require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
	}
	round()
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for range 20 {
		round()
	}
	ended := func() bool { return runtime.NumGoroutine() <= goroutines+3 } // some are about to end
	require.Eventually(t, ended, 30*time.Second, 10*time.Millisecond)
	require.Less(t, heapInUse(), heap+4<<20)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
