package amqpfront_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// An amqpDevice is a device with one connection.
type amqpDevice struct{ hubdata.Device }

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
	if err := sender.Send(ctx, hubtest.TokenMessage("1", "x", hubtest.Token(a.Device)), nil); err != nil {
		return err
	}
	m, err := receiver.Receive(ctx, nil)
	if err == nil && m.ApplicationProperties["status-code"] != int32(200) {
		err = errors.New("token refused")
	}
	return err
}

func (a *amqpDevice) receive(ctx context.Context, conn *amqp.Conn) {
	attach, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	session, err := conn.NewSession(attach, nil)
	if err != nil {
		return
	}
	l, err := session.NewReceiver(attach, hubtest.Resource(a.Device)+"/messages/devicebound",
		&amqp.ReceiverOptions{Name: "r", Credit: 3})
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
	addr := hubtest.Listen(t, h, testbroker.PortAMQP)
	const devices, messages = 4, 300
	var wg sync.WaitGroup
	for i := range devices {
		d := hubtest.AddDevice(t, h, fmt.Sprint("d", i))
		wg.Go(func() {
			conn, err := amqp.Dial(t.Context(), "amqp://"+addr.String(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			device := &amqpDevice{d}
			if err := device.authenticate(t.Context(), conn); err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var inner sync.WaitGroup
			defer func() {
				cancel()
				conn.Close()
				inner.Wait()
			}()
			inner.Go(func() { device.receive(ctx, conn) })
			inner.Go(func() {
				for n := range messages {
					for h.SendC2D(d.ID, hubdata.C2D{Body: []byte(fmt.Sprint(n))}) != nil && ctx.Err() == nil {
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
			if err := h.WaitC2D(ctx, d.ID, hubdata.C2DCompleted, messages); err != nil {
				t.Error(err)
			}
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
