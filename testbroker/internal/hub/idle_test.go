package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// An idle connection has no buffers of an earlier burst: its keep-alive frees them.
func TestIdleConnectionsKeepNoMemoryOfABurst(t *testing.T) {
	const devices = 40
	h, _ := hubtest.NewHub(t, &testbroker.Options{Keep: 1})
	addr := hubtest.Listen(t, h, testbroker.PortMQTT)
	var all []*hubtest.Wire
	for i := range devices {
		d := hubtest.AddDevice(t, h, fmt.Sprintf("idle-%d", i))
		hubtest.PatchDesired(t, h, d.ID, largeTwin)
		conn, err := net.Dial("tcp", addr.String())
		require.NoError(t, err)
		w := hubtest.NewWire(t, conn)
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		w.Subscribe(0, hubtest.TwinResults)
		all = append(all, w)
	}
	before := heap()
	for i, w := range all {
		one := hubtest.PublishBytes(2, 1, fmt.Sprintf("devices/idle-%d/messages/events/", i), strings.Repeat("x", 300))
		w.Send(bytes.Repeat(one, 100))
		for range 100 {
			w.Acked()
		}
		_, answer := hubtest.Request(w, hubtest.TwinGet+"1", "")
		require.Greater(t, len(answer), 20_000)
		for range 3 { // the hub writes from two buffers in turn
			w.Ping()
		}
	}
	if each := (heap() - before) / devices; each > 8192 {
		t.Errorf("%d bytes for each idle connection", each)
	}
}

// largeTwin has desired properties of more than 20,000 bytes.
var largeTwin = func() string {
	all := make(map[string]string)
	for i := range 6 {
		all[fmt.Sprint("p", i)] = strings.Repeat("y", 4000)
	}
	p, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(p)
}()

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
