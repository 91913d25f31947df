package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// A broker that keeps the session may close each time after it has read the birth. Its messages in
// flight never run out of packet ids, and new messages are new.
func TestABirthThatIsNeverAcknowledgedKeepsItsPacketID(t *testing.T) {
	for name, o := range map[string]*Options{"3.1.1": {}, "5": fiveOptions(nil)} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			o.Dialect = &dialect.Topics{Telemetry: "t", Birth: &transport.Message{Topic: "b"}}
			creds := &transport.Credentials{Host: "h", DeviceID: "dev-1"}
			tr := New(h.dial, o)
			connack := []byte{0x20, 2, 1, 0}
			if o.Protocol != nil {
				connack = packet(0x20, "\x01\x00", block(""))
			}
			born := func(first byte) *link {
				l, _ := h.accept()
				l.Send(connack...)
				require.Equal(t, "\x00\x01b\xff\xff", string(l.Expect(first).Body[:5]))
				return l
			}
			first := byte(0x32)
			for range 100 {
				_, _, _, cancel, err := dialedAs(t, tr, creds, func() { _ = born(first).Close() })
				require.ErrorIs(t, err, transport.Network)
				cancel()
				first = 0x3a
			}
			var l *link
			s, k, ctx, cancel, err := dialedAs(t, tr, creds, func() {
				l = born(0x3a)
				l.Puback(65535)
			})
			require.NoError(t, err)
			ran := make(chan error)
			go func() { ran <- s.Run(ctx) }()
			s.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{}}})
			require.Equal(t, "\x00\x01t\x00\x01", string(l.Expect(0x32).Body[:5]))
			l.Puback(1)
			synctest.Wait()
			require.Equal(t, []uint16{0}, k.Tags())
			cancel()
			<-ran
		})
	}
}

// A numbered message is in the device's outbox. resent: it was handed over before.
type numbered struct {
	number int // 0: free
	resent bool
}

// flaky is a Conn whose writes fail after some bytes. It records all bytes that it was given.
type flaky struct {
	Conn
	mu    sync.Mutex
	left  int
	given []byte
}

var errFlaky = errors.New("the network is gone")

func (f *flaky) Write(p []byte) (int, error) {
	f.mu.Lock()
	f.given = append(f.given, p...)
	n := min(len(p), f.left)
	f.left -= n
	f.mu.Unlock()
	if n > 0 {
		if n, err := f.Conn.Write(p[:n]); err != nil {
			return n, err
		}
	}
	if n < len(p) {
		_ = f.Conn.Close()
		return n, errFlaky
	}
	return n, nil
}

// copies returns the numbers of the messages in a stream of packets, and their DUP flags.
func copies(stream []byte) (numbers []int, dups []bool) {
	for len(stream) > 1 {
		size, n := binary.Uvarint(stream[1:])
		if n <= 0 || len(stream) < 1+n+int(size) {
			return numbers, dups
		}
		body := stream[1+n : 1+n+int(size)]
		if stream[0]>>4 == 3 {
			number, _ := strconv.Atoi(string(bytes.TrimLeft(body[bytes.LastIndexByte(body, ' ')+1:], " ")))
			numbers, dups = append(numbers, number), append(dups, stream[0]&8 != 0)
		}
		stream = stream[1+n+int(size):]
	}
	return numbers, dups
}

// DUP says exactly that an earlier copy may have been written: to a broker that knows the session,
// over MQTT 5.
func TestDUPSaysThatAnEarlierCopyMayHaveBeenWritten(t *testing.T) {
	for name, o := range map[string]func() *Options{
		"3.1.1": func() *Options { return new(Options) },
		"5":     func() *Options { return fiveOptions(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Log("seed", seed)
			bubble(t, func(t *testing.T) { tryDUP(t, rand.New(rand.NewPCG(seed, 1)), o()) })
		})
	}
}

func tryDUP(t *testing.T, random *rand.Rand, o *Options) {
	h := newHub(t)
	var conn *flaky
	h.wrap = func(c Conn) Conn {
		const greeting = 1000 // more than CONNECT has: every dial succeeds
		conn = &flaky{Conn: c, left: greeting + random.IntN(60_000)}
		return conn
	}
	tr := New(h.dial, o)
	outbox := make([]numbered, 24)
	written := map[int]bool{} // by number: a copy may be with the broker
	next, marked := 1, 0
	for range 300 {
		present := byte(min(1, random.IntN(4)))
		if o.Protocol != nil && present == 0 {
			clear(written)
		}
		go acknowledge(h, o, present, rand.New(rand.NewPCG(random.Uint64(), 2)))
		k := new(sink)
		ctx, cancel := context.WithCancel(context.Background())
		s, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 24, Queue: 1, Sink: k})
		require.NoError(t, err)
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		switch random.IntN(8) { // some batches are handed over when the session has ended
		case 0:
			cancel()
			synctest.Wait()
		case 1:
			_ = conn.Close()
			synctest.Wait()
		}
		var batch []transport.Item
		for i := range outbox {
			m := &outbox[i]
			if m.number == 0 {
				*m = numbered{number: next}
				next++
			}
			if random.IntN(3) > 0 {
				body := bytes.Repeat([]byte{' '}, 1+random.IntN(3000))
				batch = append(batch, transport.Item{Tag: uint16(i), Resent: m.resent,
					Msg: &transport.Message{Body: strconv.AppendInt(body, int64(m.number), 10)}})
				m.resent = true
			}
		}
		s.Send(batch)
		synctest.Wait()
		cancel()
		<-ran
		numbers, dups := copies(conn.given)
		for i, number := range numbers {
			require.Equal(t, written[number], dups[i], "message %d", number)
			written[number] = true
			if dups[i] {
				marked++
			}
		}
		for _, tag := range k.Tags() {
			outbox[tag] = numbered{}
		}
	}
	require.Greater(t, marked, 100)
	require.Greater(t, next, 400)
}

// acknowledge plays a broker that acknowledges some messages, until the connection ends.
func acknowledge(h *hub, o *Options, present byte, random *rand.Rand) {
	l, _ := h.accept()
	if o.Protocol != nil {
		l.Send(packet(0x20, string([]byte{present, 0}), block(""))...)
	} else {
		l.Send(0x20, 2, present, 0)
	}
	rate := random.IntN(4)
	for {
		p, err := l.Next()
		if err != nil {
			_ = l.Close()
			return
		}
		if p.First>>4 == 3 && random.IntN(4) < rate {
			id := p.Rest()[:2]
			_, _ = l.Write([]byte{0x40, 2, id[0], id[1]})
		}
	}
}
