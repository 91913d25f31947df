package testbroker_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

func subscribeBytes(id uint16, filter string) []byte {
	return frame(0x82, []byte{byte(id >> 8), byte(id)}, str(filter), []byte{1})
}

func TestRefuseSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, After: 1})
		odd := h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, After: 2, Code: 2})
		w := login(t, h, d)
		require.Equal(t, []byte{1}, w.subscribe(1, "$iothub/twin/res/#"))
		require.Equal(t, []byte{0x80, 0x80}, w.subscribe(1, devicebound, "$iothub/methods/POST/#"))
		enqueue(t, h, "x")
		w.quiet()
		require.Equal(t, []byte{2}, w.subscribe(1, devicebound))
		require.Equal(t, 1, in.Fired())
		require.Equal(t, 1, odd.Fired())
		require.Equal(t, []byte{1}, w.subscribe(1, devicebound))
		require.Equal(t, "x", w.c2dMessage().body)
	})
}

func TestDropOnSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.DropOnSubscribe})
		w, _ := keeper(t, h, d)
		w.send(subscribeBytes(7, devicebound))
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		require.Equal(t, 1, in.Fired())
		enqueue(t, h, "x")
		w, present := keeper(t, h, d)
		require.Equal(t, byte(1), present)
		w.quiet()
	})
}

func TestSwallowSuback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SwallowSuback})
		w := login(t, h, d)
		enqueue(t, h, "x")
		w.send(subscribeBytes(7, devicebound))
		require.Equal(t, "x", w.c2dMessage().body, "the filter is granted nevertheless")
		w.quiet()
		require.Equal(t, 1, in.Fired())
	})
}

func TestSlowSuback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SlowSuback, Delay: 20 * time.Second, Times: 2})
		w := login(t, h, d)
		enqueue(t, h, "x")
		start := time.Now()
		w.send(subscribeBytes(7, devicebound))
		w.quiet()
		w.publish(1, events, "x")
		w.acked()
		require.Zero(t, time.Since(start))
		require.Equal(t, []byte{0, 7, 1}, w.expect(suback))
		require.Equal(t, "x", w.c2dMessage().body)
		require.Equal(t, 20*time.Second, time.Since(start))
		w.send(subscribeBytes(8, devicebound))
		synctest.Wait()
		require.Equal(t, 2, in.Fired())
		start = time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
	})
}

func TestSubacksWithWrongCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		long := h.Inject(fault.Fault{Kind: fault.LongSuback})
		w := login(t, h, d)
		require.Equal(t, []byte{1, 1}, w.subscribe(1, devicebound))
		short := h.Inject(fault.Fault{Kind: fault.ShortSuback})
		require.Empty(t, w.subscribe(1, devicebound))
		require.Equal(t, []byte{1}, w.subscribe(1, devicebound))
		require.Equal(t, []int{1, 1}, []int{long.Fired(), short.Fired()})
	})
}

func TestUnsolicitedPubacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		stray := h.Inject(fault.Fault{Kind: fault.StrayPuback, Times: 2})
		w := login(t, h, d)
		w.publish(1, events, "x")
		require.Equal(t, []uint16{0x8001, 1}, []uint16{w.acked(), w.acked()})
		w.publish(0x8000, events, "x")
		require.Equal(t, []uint16{1, 0x8000}, []uint16{w.acked(), w.acked()})
		double := h.Inject(fault.Fault{Kind: fault.DuplicatePuback, After: 1})
		for id := range uint16(3) {
			w.publish(id+2, events, "x")
		}
		require.Equal(t, []uint16{2, 3, 3, 4}, []uint16{w.acked(), w.acked(), w.acked(), w.acked()})
		require.Equal(t, []int{2, 1}, []int{stray.Fired(), double.Fired()})
		require.Equal(t, 5, h.Len())
	})
}

func TestSwallowPingresp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SwallowPingresp, After: 1})
		w := login(t, h, d)
		w.ping()
		w.send([]byte{0xc0, 0})
		w.publish(1, events, "x")
		require.Equal(t, uint16(1), w.acked())
		require.Equal(t, 1, in.Fired())
		w.ping()
	})
}

func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		connects := h.Inject(fault.Fault{Kind: fault.GarbageOnConnect, Bytes: []byte{0xd0, 1, 7}})
		w := login(t, h, d)
		require.Equal(t, []byte{7}, w.expect(pingresp))
		subscribes := h.Inject(fault.Fault{Kind: fault.GarbageOnSubscribe, Bytes: []byte{0xd0, 1, 8}})
		w.send(subscribeBytes(7, devicebound))
		require.Equal(t, []byte{8}, w.expect(pingresp))
		w.expect(suback)
		publishes := h.Inject(fault.Fault{Kind: fault.GarbageOnPublish, Bytes: []byte{0xd0, 1, 9}, After: 1,
			Times: 2})
		w.publish(1, events, "x")
		w.acked()
		w.publish(2, events, "x")
		require.Equal(t, []byte{9}, w.expect(pingresp))
		w.acked()
		w.send(publishBytes(0, 0, events, "x"))
		require.Equal(t, []byte{9}, w.expect(pingresp), "a message with QoS 0 as well")
		require.Equal(t, []int{1, 1, 2}, []int{connects.Fired(), subscribes.Fired(), publishes.Fired()})

		require.Equal(t, 1, h.SendRaw("dev-1", []byte{0xd0, 1, 10}))
		require.Equal(t, []byte{10}, w.expect(pingresp))
		require.Zero(t, h.SendRaw("dev-2", nil))
		w.quiet()

		h.Inject(fault.Fault{Kind: fault.GarbageOnPublish})
		w.publish(3, events, "x")
		first, err := w.in.ReadByte()
		require.NoError(t, err)
		require.Equal(t, byte(0x0f), first)
		mute := dial(t, h)
		synctest.Wait()
		require.Equal(t, 1, h.SendRaw("", []byte{0}), "only those that are established")
		mute.conn.Close()
	})
}
