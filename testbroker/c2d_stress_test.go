package testbroker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// TestNoC2DMessageIsLost sends C2D messages to a device that meets many faults and acknowledges
// most deliveries. Each C2D message must be completed, each must reach the device at least once,
// and first deliveries must be in order.
func TestNoC2DMessageIsLost(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { commandStress(t, seed) })
		})
	}
}

func commandStress(t *testing.T, seed uint64) {
	const commands = 200
	rng := rand.New(rand.NewPCG(seed, 2))
	h, d := hubtest.NewHub(t, &testbroker.Options{Seed: seed + 1, C2D: testbroker.C2DOptions{TTL: 48 * time.Hour,
		MaxDeliveries: 1000, Window: 1 + rng.IntN(20)}})
	clean := rng.IntN(2) == 0
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.SwallowConnack, fault.DropConnect, fault.HalfOpen, fault.Absent,
		fault.ForgetSession,
		fault.RefuseSubscribe, fault.DropOnSubscribe, fault.SlowSuback, fault.SwallowSuback,
		fault.DropAfterPublish,
		fault.SwallowPingresp,
	}
	stop := make(chan struct{})
	got := make(chan []int, 1)
	go func() { got <- receiveAll(t, h, d, clean, seed, stop) }()
	var faults []*testbroker.Injected
	for n := range commands {
		for {
			err := h.SendC2D("dev-1", hubdata.C2D{Body: fmt.Append(nil, n)})
			if err == nil {
				break
			}
			require.ErrorIs(t, err, testbroker.ErrQueueFull)
			time.Sleep(time.Second)
		}
		if n%8 == 0 {
			f := fault.Fault{
				Kind: kinds[rng.IntN(len(kinds))], Times: 1, Delay: time.Duration(rng.Int64N(int64(time.Second))),
				For: time.Duration(1 + rng.Int64N(int64(20*time.Second))),
			}
			if f.Kind.Lasts() {
				f.Times = 0
			}
			faults = append(faults, h.Inject(f))
		}
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
	defer cancel()
	err := h.WaitC2D(ctx, "", hubdata.Completed, commands)
	close(stop)
	require.NoError(t, err, "%v", states(h))
	seen := make(map[int]bool)
	for _, n := range <-got {
		if !seen[n] {
			require.Equal(t, len(seen), n, "the first of its kind comes in order")
			seen[n] = true
		}
	}
	require.Len(t, seen, commands)
	fired := 0
	for _, in := range faults {
		fired += in.Fired()
	}
	require.NotZero(t, fired)
}

// receiveAll reconnects repeatedly, acknowledges most deliveries, and returns the numbers in order
// of arrival.
func receiveAll(t *testing.T, h *testbroker.Hub, d hubdata.Device, clean bool, seed uint64, stop <-chan struct{}) (
	all []int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	subscribed := false // state of the kept session
	for ; ; time.Sleep(234 * time.Millisecond) {
		select {
		case <-stop:
			return all
		default:
		}
		raw, err := h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub")
		if err != nil {
			continue
		}
		received := receive(hubtest.NewWire(t, raw), raw, d, clean, rng, &subscribed, stop)
		all = append(all, received...)
		raw.Close()
	}
}

func receive(w *hubtest.Wire, raw net.Conn, d hubdata.Device, clean bool, rng *rand.Rand, subscribed *bool,
	stop <-chan struct{}) (all []int) {
	con := hubtest.ConnectOf(d)
	con.Password = hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1", d.PrimaryKey, time.Now().Add(time.Hour).Unix())
	if !clean {
		con.Flags = 0
	}
	raw.SetDeadline(time.Now().Add(5 * time.Second))
	raw.Write(con.Bytes())
	kind, body, err := w.Read()
	if err != nil || kind != hubtest.Connack || body[1] != 0 {
		return nil
	}
	if *subscribed = *subscribed && body[0] == 1; !*subscribed {
		raw.Write(hubtest.SubscribeBytes(7, devicebound))
	}
	for {
		select {
		case <-stop:
			return all
		default:
		}
		raw.SetDeadline(time.Now().Add(5 * time.Second))
		kind, body, err := w.Read()
		switch {
		case err != nil, kind == hubtest.Suback && body[2] != 1:
			return all
		case kind == hubtest.Suback:
			*subscribed = true
		case kind == 3:
			n := binary.BigEndian.Uint16(body)
			id := body[2+n : 4+n]
			number, err := strconv.Atoi(string(body[4+n:]))
			if err != nil {
				panic(err)
			}
			all = append(all, number)
			if rng.IntN(20) == 0 {
				return all // ends without a PUBACK
			}
			raw.Write(append([]byte{0x40, 2}, id...))
			if rng.IntN(10) == 0 {
				raw.Write(hubtest.PublishBytes(2, 1, hubtest.Events, "x"))
			}
		}
	}
}
