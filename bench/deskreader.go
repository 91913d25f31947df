package bench

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// deskReader reads the telemetry of all devices at the endpoint for Event Hubs clients, with
// Azure's AMQP library and a link for each partition.
type deskReader struct {
	conn *amqp.Conn
	read atomic.Int64
	stop context.CancelFunc
	done chan error // of each link
}

// deskPartitions is the default of the hub.
const deskPartitions = 4

// deskCredit is the number of events that the hub may send ahead on a link.
const deskCredit = 5000

// partition attaches a link that receives the events of a partition after an offset; "-1" is the
// beginning.
func (a *access) partition(ctx context.Context, session *amqp.Session, n int, offset string) (*amqp.Receiver, error) {
	name, _, _ := strings.Cut(a.Host, ".")
	return session.NewReceiver(ctx, fmt.Sprintf("%s/ConsumerGroups/$Default/Partitions/%d", name, n),
		&amqp.ReceiverOptions{Credit: deskCredit, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
			Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-offset > '" + offset + "'")}})
}

func openDeskReader(ctx context.Context, hub *testbroker.Hub, a *access) (*deskReader, error) {
	policy, err := hub.AddPolicy("reader", hubdata.ServiceConnect)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &deskReader{stop: stop, done: make(chan error, deskPartitions)}
	scheme := "amqp://"
	if a.CA != nil {
		scheme = "amqps://"
	}
	r.conn, err = amqp.Dial(ctx, scheme+a.Addr, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(policy.Name, policy.PrimaryKey), HostName: a.Host, TLSConfig: a.tls(),
	})
	if err != nil {
		stop()
		return nil, err
	}
	session, err := r.conn.NewSession(ctx, nil)
	if err != nil {
		return nil, r.close(err)
	}
	for n := range deskPartitions {
		link, err := a.partition(ctx, session, n, "-1")
		if err != nil {
			return nil, r.close(err)
		}
		go func() {
			for {
				if _, err := link.Receive(ctx, nil); err != nil {
					r.done <- err
					return
				}
				r.read.Add(1)
			}
		}()
	}
	return r, nil
}

// until waits until the reader has n events, and for a second more, in which none may come. It
// returns how many there were, and when the last of the n came.
func (r *deskReader) until(ctx context.Context, n int) (read int, last time.Time, err error) {
	defer func() { err = r.close(err) }()
	for end := time.Now().Add(time.Minute); r.read.Load() < int64(n) && time.Now().Before(end); {
		select {
		case err := <-r.done:
			return 0, last, err
		case <-ctx.Done():
			return 0, last, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	last = time.Now()
	time.Sleep(time.Second)
	return int(r.read.Load()), last, nil
}

func (r *deskReader) close(err error) error {
	r.stop()
	_ = r.conn.Close()
	return err
}
