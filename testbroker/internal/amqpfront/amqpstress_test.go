package amqpfront_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// TestAMQPUnderFaults runs a few devices through many faults. A device sends each message until it
// is accepted, over new connections if needed, and accepts C2D messages meanwhile. In the end the
// log must hold all messages, in order except for repetitions, and no C2D message may wait.
func TestAMQPUnderFaults(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stressAMQP(t, seed) })
		})
	}
}

func stressAMQP(t *testing.T, seed uint64) {
	const devices, messages, commands = 3, 60, 20
	rng := rand.New(rand.NewPCG(seed, 2))
	h, _ := hubtest.NewHub(t, &testbroker.Options{Seed: seed + 1, C2D: testbroker.C2DOptions{MaxDeliveries: 1000}})
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.SlowConnack, fault.SwallowConnack, fault.DropConnect,
		fault.GarbageOnConnect,
		fault.DropBeforePublish, fault.DropAfterPublish, fault.DropAfterPuback, fault.SlowPuback,
		fault.SwallowPuback,
		fault.GarbageOnPublish, fault.HalfOpen, fault.Throttle, fault.Absent, fault.Quota,
		fault.RefuseAttach, fault.SlowAttach, fault.SwallowAttach, fault.DropOnAttach,
		fault.WithholdCredit, fault.DetachWhileIdle,
		fault.RejectMessage, fault.ReleaseMessage, fault.ModifyMessage, fault.CloseOnMessage,
		fault.EndOnMessage,
		fault.DetachOnMessage, fault.DetachAfterMessage,
		fault.RefuseToken, fault.SlowToken, fault.SwallowToken, fault.DropOnToken,
	}
	var plan []fault.Fault
	var pauses []time.Duration
	for range 60 {
		f := fault.Fault{
			Kind: kinds[rng.IntN(len(kinds))], After: rng.IntN(3), Times: 1 + rng.IntN(2), Unclosed: rng.IntN(4) == 0,
			Delay: time.Duration(1 + rng.Int64N(int64(time.Second))), For: time.Duration(1 + rng.Int64N(int64(20*time.Second))),
			Rate: 10,
		}
		if f.Kind.Lasts() {
			f.Times = 0
		}
		if rng.IntN(2) == 0 {
			f.Device = fmt.Sprint("d", rng.IntN(devices))
		}
		plan = append(plan, f)
		pauses = append(pauses, time.Duration(rng.Int64N(int64(2*time.Second))))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sending, running sync.WaitGroup
	for i := range devices {
		d, err := h.AddDevice(fmt.Sprint("d", i))
		require.NoError(t, err)
		var sent sync.WaitGroup
		sent.Add(1)
		sending.Go(sent.Wait)
		running.Go(func() {
			device := amqpDevice{t: t, hub: h, d: d, pause: time.Duration(i+1) * time.Millisecond}
			device.run(ctx, messages, sent.Done)
		})
	}
	var faults []*testbroker.Injected
	for i, f := range plan {
		time.Sleep(pauses[i])
		faults = append(faults, h.Inject(f))
		if i < commands {
			for h.SendC2D(fmt.Sprint("d", i%devices), hubdata.C2D{MessageID: fmt.Sprint(i), Body: []byte{byte(i)},
				Expiry: time.Now().Add(24 * time.Hour)}) != nil {
				time.Sleep(time.Second) // a quota is exhausted
			}
		}
	}
	sending.Wait()
	for _, in := range faults {
		in.Remove()
	}
	end, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	if err := h.WaitC2D(end, "", hubdata.Completed, commands); err != nil {
		t.Errorf("commands: %v: %+v", err, h.C2DLog(""))
	}
	cancel()
	running.Wait()

	next := make(map[string]int)
	for _, m := range h.Messages() {
		var n int
		_, err := fmt.Sscan(m.MessageID, &n)
		require.NoError(t, err)
		if n > next[m.DeviceID] {
			t.Errorf("%s: message %d is missing", m.DeviceID, next[m.DeviceID])
		}
		next[m.DeviceID] = max(next[m.DeviceID], n+1)
	}
	for i := range devices {
		require.Equal(t, messages, next[fmt.Sprint("d", i)])
	}
	require.Empty(t, h.Conflicts())
	fired := 0
	for _, in := range faults {
		fired += in.Fired()
	}
	require.NotZero(t, fired)
	t.Logf("%d messages, %d faults fired", h.Len(), fired)
}

// An amqpDevice sends its messages, and reconnects after any failure.
type amqpDevice struct {
	t     testing.TB
	hub   *testbroker.Hub
	d     hubdata.Device
	pause time.Duration // so that no two devices act at the same instant

	next int // next message to send; used by run
}

// run runs until the context ends. It calls done once all messages are accepted.
func (a *amqpDevice) run(ctx context.Context, messages int, done func()) {
	announced := false
	for ctx.Err() == nil {
		conn, err := a.connect(ctx)
		if err == nil {
			live, cancel := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() { a.receive(live, conn); cancel() })
			a.send(live, conn, messages)
			if a.next >= messages && !announced {
				announced = true
				done()
			}
			if a.next >= messages {
				<-live.Done()
			}
			cancel()
			conn.Close()
			wg.Wait()
		}
		time.Sleep(500*time.Millisecond + a.pause)
	}
	if !announced {
		done()
	}
}

func (a *amqpDevice) connect(ctx context.Context) (*amqp.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := a.hub.Dial(testbroker.PortAMQP)(ctx, "tcp", "hub")
	if err != nil {
		return nil, err
	}
	conn, err := amqp.NewConn(ctx, stream, &amqp.ConnOptions{ContainerID: a.d.ID, IdleTimeout: 20 * time.Second})
	if err != nil {
		stream.Close()
		return nil, err
	}
	if err := a.authenticate(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (a *amqpDevice) authenticate(ctx context.Context, conn *amqp.Conn) error {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "$cbs", &amqp.SenderOptions{Name: "cbs-sender"})
	if err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, "$cbs", &amqp.ReceiverOptions{Name: "cbs-receiver", Credit: 10})
	if err != nil {
		return err
	}
	if err := sender.Send(ctx, hubtest.TokenMessage("1", "x", hubtest.Token(a.d)), nil); err != nil {
		return err
	}
	m, err := receiver.Receive(ctx, nil)
	if err == nil && m.ApplicationProperties["status-code"] != int32(200) {
		err = errors.New("token refused")
	}
	return err
}

func (a *amqpDevice) send(ctx context.Context, conn *amqp.Conn, messages int) {
	attach, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	session, err := conn.NewSession(attach, nil)
	if err != nil {
		return
	}
	l, err := session.NewSender(attach, hubtest.Resource(a.d)+"/messages/events", &amqp.SenderOptions{Name: "s"})
	if err != nil {
		return
	}
	for a.next < messages {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		m := hubtest.Body(fmt.Sprint("message ", a.next))
		m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint(a.next)}
		r, err := l.SendWithReceipt(once, m, nil)
		var state amqp.DeliveryState
		if err == nil {
			state, err = r.Wait(once)
		}
		cancel()
		if err != nil {
			return
		}
		if _, ok := state.(*amqp.StateAccepted); ok {
			a.next++
		}
		time.Sleep(time.Second + a.pause)
	}
}

func (a *amqpDevice) receive(ctx context.Context, conn *amqp.Conn) {
	attach, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	session, err := conn.NewSession(attach, nil)
	if err != nil {
		return
	}
	l, err := session.NewReceiver(attach, hubtest.Resource(a.d)+"/messages/devicebound", &amqp.ReceiverOptions{Name: "r",
		Credit: 3})
	if err != nil {
		return
	}
	for {
		m, err := l.Receive(ctx, nil)
		if err != nil {
			return
		}
		if l.AcceptMessage(ctx, m) != nil {
			return
		}
	}
}

// TestAMQPUnderLoad does everything concurrently on real connections, for the race detector.
func TestAMQPUnderLoad(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	addr, err := h.Listen(testbroker.PortAMQP, "127.0.0.1:0")
	require.NoError(t, err)
	const devices, messages = 4, 300
	var wg sync.WaitGroup
	for i := range devices {
		d, err := h.AddDevice(fmt.Sprint("d", i))
		require.NoError(t, err)
		wg.Go(func() {
			conn, err := amqp.Dial(t.Context(), "amqp://"+addr.String(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			device := amqpDevice{t: t, hub: h, d: d}
			if err := device.authenticate(t.Context(), conn); err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var inner sync.WaitGroup
			inner.Go(func() { device.receive(ctx, conn) })
			inner.Go(func() {
				for n := range messages {
					for h.SendC2D(d.ID, hubdata.C2D{Body: []byte(fmt.Sprint(n))}) != nil {
						time.Sleep(time.Millisecond)
					}
				}
			})
			session, err := conn.NewSession(ctx, nil)
			if err != nil {
				t.Error(err)
				return
			}
			l, err := session.NewSender(ctx, hubtest.Resource(d)+"/messages/events", nil)
			if err != nil {
				t.Error(err)
				return
			}
			var receipts []amqp.SendReceipt
			for n := range messages {
				r, err := l.SendWithReceipt(ctx, hubtest.Body(fmt.Sprint(n)), nil)
				if err != nil {
					t.Error(err)
					return
				}
				receipts = append(receipts, r)
			}
			for _, r := range receipts {
				if _, err := r.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
			if err := h.WaitC2D(ctx, d.ID, hubdata.Completed, messages); err != nil {
				t.Error(err)
			}
			cancel()
			conn.Close()
			inner.Wait()
		})
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				h.Links("", fault.LinkAny)
				h.Connections("d1")
				h.C2DLog("d2")
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-done
	require.Equal(t, devices*messages, h.Len())
}
