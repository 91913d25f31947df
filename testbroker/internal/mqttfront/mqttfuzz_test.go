package mqttfront_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// connectionFaults are drawn for a fuzzed connection; none comes first.
var connectionFaults = []fault.Kind{
	0, fault.DropDuringPublish, fault.DropBeforePublish, fault.DropAfterPublish, fault.DropAfterPuback,
	fault.SwallowPuback, fault.Forget, fault.HalfOpen,
}

// FuzzMQTTConnection is a client that sends messages of the given sizes and any bytes after or
// before them, in pieces that end anywhere, while a fault is declared: the connection ends, with
// bounded memory. Each message is logged once at most, each PUBACK is for a logged message, and the
// hub serves the next connection.
func FuzzMQTTConnection(f *testing.F) {
	for kind := range connectionFaults {
		f.Add([]byte{1, 0, 200, 30, 4, 9}, []byte{0xc0, 0}, []byte{3, 70, 1}, byte(kind), byte(2), false)
		f.Add([]byte{3, 255, 255}, []byte{0x32, 0xff, 0xff, 0x7f, 0, 3}, []byte{255, 0}, byte(kind), byte(0), false)
	}
	for _, all := range packets.TPacketData {
		for i, p := range all {
			f.Add([]byte{10, 20, 30}, p.RawBytes, []byte{byte(i)}, byte(i), byte(1), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, sizes, raw, cuts []byte, kind, after byte, first bool) {
		synctest.Test(t, func(t *testing.T) {
			stream, n := fuzzedMessages(sizes), min(len(sizes), 64)
			if first {
				stream = append(bytes.Clone(raw), stream...)
			} else {
				stream = append(stream, raw...)
			}
			h, d := hubtest.NewHub(t, nil)
			k, forgotten := connectionFaults[int(kind)%len(connectionFaults)], 0
			if k == fault.Forget {
				forgotten = 1
			}
			w := hubtest.Login(t, h, d)
			remove := func() {}
			if k != 0 {
				remove = h.Inject(fault.Fault{Kind: k, After: int(after % 8)}).Remove
			}
			acks := sendFuzzed(t, w, stream, cuts)
			if !bytes.Contains(raw, []byte("$iothub")) && !bytes.Contains(raw, []byte("AzIoTHub")) {
				checkFuzzed(t, h, acks, n, forgotten)
			}
			remove()
			hubtest.Login(t, h, d).Ping()
		})
	})
}

// fuzzedMessages returns a PUBLISH for each of the first 64 sizes, with a body of its own.
func fuzzedMessages(sizes []byte) (stream []byte) {
	for i, size := range sizes[:min(len(sizes), 64)] {
		body := fmt.Sprintf("fuzzed-%d.", i) + strings.Repeat("x", int(size)*int(size)/4)
		stream = append(stream, hubtest.PublishBytes(2, uint16(i+1), hubtest.Events, body)...)
	}
	return stream
}

// sendFuzzed sends a stream in pieces, each of which the hub handles before the next one comes, and
// returns the ids of all PUBACKs.
func sendFuzzed(t *testing.T, w *hubtest.Wire, stream, cuts []byte) (acks []uint16) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for left, i := stream, 0; len(left) > 0; i++ {
		n := len(left)
		if i < len(cuts) && i < 64 {
			n = min(n, 1+int(cuts[i])*int(cuts[i])/8)
		}
		if _, err := w.Conn.Write(left[:n]); err != nil {
			break // the hub has ended the connection
		}
		left = left[n:]
		synctest.Wait()
	}
	w.Conn.(interface{ CloseWrite() error }).CloseWrite()
	answers, err := io.ReadAll(w.In)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4<<20+64*len(stream)); got > most {
		t.Errorf("%d bytes allocated for %d", got, len(stream))
	}
	in := &hubtest.Wire{T: t, Conn: w.Conn, In: bufio.NewReader(bytes.NewReader(answers))}
	for {
		kind, body, err := in.Read()
		if err != nil {
			return acks
		}
		if kind == hubtest.Puback {
			acks = append(acks, binary.BigEndian.Uint16(body))
		}
	}
}

// checkFuzzed compares the log with the PUBACKs.
func checkFuzzed(t *testing.T, h *testbroker.Hub, acks []uint16, n, forgotten int) {
	logged, bodies := make(map[uint16]int), make(map[string]int)
	for _, m := range h.Messages() {
		if m.QoS > 0 {
			logged[m.PacketID]++
		}
		name, _, _ := strings.Cut(string(m.Body), ".")
		bodies[name]++
	}
	for i := range n {
		if name := fmt.Sprintf("fuzzed-%d", i); bodies[name] > 1 {
			t.Errorf("%s was logged %d times", name, bodies[name])
		}
	}
	for _, id := range acks {
		if logged[id]--; logged[id] < 0 {
			forgotten--
		}
	}
	if forgotten < 0 {
		t.Errorf("%d PUBACKs are for messages that were not logged", -forgotten)
	}
}
