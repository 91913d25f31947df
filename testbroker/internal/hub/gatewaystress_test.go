package hub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
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

// TestAGatewayLosesNothing runs devices and modules through outages, restarts and faults of their
// gateway. Acknowledged messages reach the hub and the inputs, in order except for repetitions.
func TestAGatewayLosesNothing(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEdge(t, &testbroker.Options{Seed: seed + 1})
				dial := func() (net.Conn, error) { return e.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "edge") }
				loseNothing(t, e, dial, nil, seed, 100, time.Second)
			})
		})
	}
}

// TestAGatewayLosesNothingOnRealPorts is the same over TCP, with receivers over AMQP.
func TestAGatewayLosesNothingOnRealPorts(t *testing.T) {
	e := newEdge(t, &testbroker.Options{Inputs: testbroker.C2DOptions{Lock: time.Second}})
	to, err := e.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	at, err := e.Listen(testbroker.PortAMQP, "127.0.0.1:0")
	require.NoError(t, err)
	dial := func() (net.Conn, error) { return net.Dial("tcp", to.String()) }
	loseNothing(t, e, dial, at, 1, 200, 2*time.Millisecond)
}

// loseNothing sends from three clients at a pace of one message each pause, while the gateway
// suffers. at is the address of AMQP for the receiver of the input, which is on MQTT without it.
func loseNothing(t *testing.T, e *edgeSite, dial func() (net.Conn, error), at net.Addr, seed uint64, messages int,
	pause time.Duration,
) {
	leaf, err := e.AddDevice("leaf")
	require.NoError(t, err)
	got := &arrivals{next: make(map[string]int)}
	receiving, stop := context.WithCancel(t.Context())
	var receivers, senders sync.WaitGroup
	receivers.Go(func() {
		if at == nil {
			receiveMQTT(receiving, t, e, dial, got, pause)
		} else {
			receiveAMQP(receiving, e, at, got, pause)
		}
	})
	for d, properties := range map[hubdata.Device]string{leaf: "", e.device: "", e.source: "&%24.on=out"} {
		senders.Go(func() { sendAllBy(t, dial, d, properties, messages, pause) })
	}
	suffer(e, rand.New(rand.NewPCG(seed, 2)), pause)
	senders.Wait()
	enough, cancel := context.WithTimeout(t.Context(), max(3000*pause, 20*time.Second))
	defer cancel()
	require.NoError(t, e.Wait(enough, func([]hubdata.Message) bool {
		return e.Stored() == 0 && got.of("source") == messages
	}), "%+v %v", e.GatewayState(), got)
	stop()
	e.Drop("dev-1/mod-1")
	receivers.Wait()

	next := make(map[string]int)
	for _, m := range e.Messages() {
		n := number(m.MessageID)
		require.LessOrEqual(t, n, next[m.DeviceID+"/"+m.ModuleID], "a message is missing")
		next[m.DeviceID+"/"+m.ModuleID] = max(next[m.DeviceID+"/"+m.ModuleID], n+1)
	}
	require.Equal(t, map[string]int{"leaf/": messages, "dev-1/": messages, "dev-1/source": messages}, next)
	require.Empty(t, got.gaps)
	require.Empty(t, e.Conflicts())
	require.Zero(t, e.GatewayState().Unrouted)
}

// suffer takes the gateway through its troubles, and leaves it healthy.
func suffer(e *edgeSite, rng *rand.Rand, pause time.Duration) {
	kinds := []fault.Kind{fault.SlowRoute, fault.ForwardTwice, fault.DropAfterPublish, fault.DropBeforePublish,
		fault.SwallowPuback, fault.SlowPuback, fault.LoseSettlement}
	for range 20 {
		time.Sleep(time.Duration(rng.Int64N(int64(6 * pause))))
		switch rng.IntN(3) {
		case 0:
			e.SetOffline(rng.IntN(2) == 0)
		case 1:
			e.StopGateway()
			time.Sleep(time.Duration(rng.Int64N(int64(3 * pause))))
			e.StartGateway()
		default:
			e.Inject(fault.Fault{Kind: kinds[rng.IntN(len(kinds))], Delay: 2 * pause, Times: 2})
		}
	}
	e.SetOffline(false)
}

func number(s string) (n int) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		return -1
	}
	return n
}

// arrivals are the messages that a receiver has got from each sender.
type arrivals struct {
	mu   sync.Mutex
	next map[string]int
	gaps []string
}

func (a *arrivals) add(sender, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch n := number(id); {
	case n > a.next[sender]:
		a.gaps = append(a.gaps, fmt.Sprintf("%s: %d instead of %d", sender, n, a.next[sender]))
	case n == a.next[sender]:
		a.next[sender]++
	}
}

func (a *arrivals) of(sender string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next[sender]
}

// receiveMQTT receives the input of mod-1 and acknowledges each message, over as many connections
// as that takes.
func receiveMQTT(ctx context.Context, t *testing.T, e *edgeSite, dial func() (net.Conn, error), got *arrivals,
	pause time.Duration,
) {
	for ; ctx.Err() == nil; time.Sleep(pause / 4) {
		raw, err := dial()
		if err != nil {
			continue
		}
		w := hubtest.NewWire(t, raw)
		raw.Write(hubtest.ConnectOf(e.mod).Bytes())
		raw.Write(hubtest.Frame(0x82, []byte{0, 1}, hubtest.Str(modInputs+"#"), []byte{1}))
		for {
			kind, p, err := w.Read()
			if err != nil {
				break
			}
			if kind != 3 {
				continue
			}
			n := int(p[0])<<8 | int(p[1])
			bag := bagOf(string(p[2 : 2+n]))
			got.add(bag["%24.cmid"], bag["%24.mid"])
			raw.Write([]byte{0x40, 2, p[2+n], p[3+n]})
		}
		raw.Close()
	}
}

// receiveAMQP does the same over AMQP.
func receiveAMQP(ctx context.Context, e *edgeSite, at net.Addr, got *arrivals, pause time.Duration) {
	for ; ctx.Err() == nil; time.Sleep(pause) {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		receiveOnce(limited, e, at, got)
		cancel()
	}
}

func receiveOnce(ctx context.Context, e *edgeSite, at net.Addr, got *arrivals) {
	c, err := amqp.Dial(ctx, "amqp://"+at.String(), &amqp.ConnOptions{HostName: gatewayName,
		SASLType: amqp.SASLTypePlain("dev-1/mod-1@sas.hub", hubtest.Token(e.mod))})
	if err != nil {
		return
	}
	defer c.Close()
	s, err := c.NewSession(ctx, nil)
	if err != nil {
		return
	}
	l, err := s.NewReceiver(ctx, modEvents, &amqp.ReceiverOptions{Credit: 20})
	if err != nil {
		return
	}
	for {
		m, err := l.Receive(ctx, nil)
		if err != nil {
			return
		}
		sender, _ := m.Annotations["iothub-connection-module-id"].(string)
		got.add(sender, fmt.Sprint(m.Properties.MessageID))
		if l.AcceptMessage(ctx, m) != nil {
			return
		}
	}
}

// bagOf returns the properties in a topic, undecoded.
func bagOf(topic string) map[string]string {
	all := make(map[string]string)
	for pair := range strings.SplitSeq(topic[strings.LastIndexByte(topic, '/')+1:], "&") {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// sendAllBy sends a message each pause until each is acknowledged. It closes a connection that does
// not answer.
func sendAllBy(t *testing.T, dial func() (net.Conn, error), d hubdata.Device, properties string, messages int,
	pause time.Duration,
) {
	for n := 0; n < messages; time.Sleep(pause / 8) {
		raw, err := dial()
		if err != nil {
			continue
		}
		w := hubtest.NewWire(t, raw)
		answer := func(p []byte) (byte, []byte, error) {
			raw.SetDeadline(time.Now().Add(5 * time.Second))
			raw.Write(p) // a failure shows in the missing answer
			return w.Read()
		}
		kind, body, err := answer(hubtest.ConnectOf(d).Bytes())
		if err == nil && kind == hubtest.Connack && body[1] == 0 {
			for n < messages {
				topic := fmt.Sprintf("%s/messages/events/%%24.mid=%d%s", hubtest.Resource(d)[1:], n, properties)
				kind, body, err = answer(hubtest.PublishBytes(2, uint16(n+1), topic, fmt.Sprint("body ", n)))
				if err != nil {
					break
				}
				if kind != hubtest.Puback || body[1] != byte(n+1) {
					t.Errorf("packet of type %d with %x for message %d", kind, body, n)
				}
				n++
				time.Sleep(pause)
			}
		}
		raw.Close()
	}
}
