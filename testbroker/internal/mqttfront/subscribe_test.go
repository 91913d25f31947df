package mqttfront_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestRefuseSubscribe(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, After: 1})
		odd := h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, After: 2, Code: 2})
		w := hubtest.Login(t, h, d)
		require.Equal(t, []byte{1}, w.Subscribe(1, "$iothub/twin/res/#"))
		require.Equal(t, []byte{0x80, 0x80}, w.Subscribe(1, hubtest.DeviceBound, "$iothub/methods/POST/#"))
		hubtest.Enqueue(t, h, "x")
		hubtest.Quiet(w)
		require.Equal(t, []byte{2}, w.Subscribe(1, hubtest.DeviceBound))
		require.Equal(t, 1, in.Fired())
		require.Equal(t, 1, odd.Fired())
		require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
		require.Equal(t, "x", hubtest.ReadPublish(w).Body)
	})
}

func TestDropOnSubscribe(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.DropOnSubscribe})
		w, _ := hubtest.Keeper(t, h, d)
		w.Send(hubtest.SubscribeBytes(7, hubtest.DeviceBound))
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		require.Equal(t, 1, in.Fired())
		hubtest.Enqueue(t, h, "x")
		w, present := hubtest.Keeper(t, h, d)
		require.Equal(t, byte(1), present)
		hubtest.Quiet(w)
	})
}

func TestSwallowSuback(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SwallowSuback})
		w := hubtest.Login(t, h, d)
		hubtest.Enqueue(t, h, "x")
		w.Send(hubtest.SubscribeBytes(7, hubtest.DeviceBound))
		require.Equal(t, "x", hubtest.ReadPublish(w).Body, "the filter is granted nevertheless")
		hubtest.Quiet(w)
		require.Equal(t, 1, in.Fired())
	})
}

func TestSlowSuback(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SlowSuback, Delay: 20 * time.Second, Times: 2})
		w := hubtest.Login(t, h, d)
		hubtest.Enqueue(t, h, "x")
		start := time.Now()
		w.Send(hubtest.SubscribeBytes(7, hubtest.DeviceBound))
		hubtest.Quiet(w)
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		require.Zero(t, time.Since(start))
		require.Equal(t, []byte{0, 7, 1}, w.Expect(hubtest.Suback))
		require.Equal(t, "x", hubtest.ReadPublish(w).Body)
		require.Equal(t, 20*time.Second, time.Since(start))
		w.Send(hubtest.SubscribeBytes(8, hubtest.DeviceBound))
		synctest.Wait()
		require.Equal(t, 2, in.Fired())
		start = time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
	})
}

func TestSubacksWithWrongCounts(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		long := h.Inject(fault.Fault{Kind: fault.LongSuback})
		w := hubtest.Login(t, h, d)
		require.Equal(t, []byte{1, 1}, w.Subscribe(1, hubtest.DeviceBound))
		short := h.Inject(fault.Fault{Kind: fault.ShortSuback})
		require.Empty(t, w.Subscribe(1, hubtest.DeviceBound))
		require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
		require.Equal(t, []int{1, 1}, []int{long.Fired(), short.Fired()})
	})
}

func TestUnsolicitedPubacks(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		stray := h.Inject(fault.Fault{Kind: fault.StrayPuback, Times: 2})
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events, "x")
		require.Equal(t, []uint16{0x8001, 1}, []uint16{w.Acked(), w.Acked()})
		w.Publish(0x8000, hubtest.Events, "x")
		require.Equal(t, []uint16{1, 0x8000}, []uint16{w.Acked(), w.Acked()})
		double := h.Inject(fault.Fault{Kind: fault.DuplicatePuback, After: 1})
		for id := range uint16(3) {
			w.Publish(id+2, hubtest.Events, "x")
		}
		require.Equal(t, []uint16{2, 3, 3, 4}, []uint16{w.Acked(), w.Acked(), w.Acked(), w.Acked()})
		require.Equal(t, []int{2, 1}, []int{stray.Fired(), double.Fired()})
		require.Equal(t, 5, h.Len())
	})
}

func TestSwallowPingresp(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SwallowPingresp, After: 1})
		w := hubtest.Login(t, h, d)
		w.Ping()
		w.Send([]byte{0xc0, 0})
		w.Publish(1, hubtest.Events, "x")
		require.Equal(t, uint16(1), w.Acked())
		require.Equal(t, 1, in.Fired())
		w.Ping()
	})
}

func TestGarbage(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		connects := h.Inject(fault.Fault{Kind: fault.GarbageOnConnect, Bytes: []byte{0xd0, 1, 7}})
		w := hubtest.Login(t, h, d)
		require.Equal(t, []byte{7}, w.Expect(hubtest.Pingresp))
		subscribes := h.Inject(fault.Fault{Kind: fault.GarbageOnSubscribe, Bytes: []byte{0xd0, 1, 8}})
		w.Send(hubtest.SubscribeBytes(7, hubtest.DeviceBound))
		require.Equal(t, []byte{8}, w.Expect(hubtest.Pingresp))
		w.Expect(hubtest.Suback)
		publishes := h.Inject(fault.Fault{Kind: fault.GarbageOnPublish, Bytes: []byte{0xd0, 1, 9}, After: 1,
			Times: 2})
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		w.Publish(2, hubtest.Events, "x")
		require.Equal(t, []byte{9}, w.Expect(hubtest.Pingresp))
		w.Acked()
		w.Send(hubtest.PublishBytes(0, 0, hubtest.Events, "x"))
		require.Equal(t, []byte{9}, w.Expect(hubtest.Pingresp), "a message with QoS 0 as well")
		require.Equal(t, []int{1, 1, 2}, []int{connects.Fired(), subscribes.Fired(), publishes.Fired()})

		require.Equal(t, 1, h.SendRaw("dev-1", []byte{0xd0, 1, 10}))
		require.Equal(t, []byte{10}, w.Expect(hubtest.Pingresp))
		require.Zero(t, h.SendRaw("dev-2", nil))
		hubtest.Quiet(w)

		h.Inject(fault.Fault{Kind: fault.GarbageOnPublish})
		w.Publish(3, hubtest.Events, "x")
		first, err := w.In.ReadByte()
		require.NoError(t, err)
		require.Equal(t, byte(0x0f), first)
		mute := hubtest.Dial(t, h)
		synctest.Wait()
		require.Equal(t, 1, h.SendRaw("", []byte{0}), "only those that are established")
		mute.Conn.Close()
	})
}
