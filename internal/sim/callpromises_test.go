package sim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// withEachTwin runs f in fake time, once for each engine with twin and methods.
func withEachTwin(t *testing.T, f func(t *testing.T, e *env)) {
	withTwins(t, func(engine) bool { return true }, f)
}

// classic reports whether twin and methods have subscriptions, and answers end with their
// connection.
func classic(e engine) bool { return !e.next }

// withTwins is withEachTwin for some of the engines.
func withTwins(t *testing.T, some func(e engine) bool, f func(t *testing.T, e *env)) {
	withEachEngine(t, func(t *testing.T, e engine) {
		if !e.twins || !some(e) {
			t.Skip("there are no twins, or none of that kind")
		}
		testkit.Bubble(t, func(t *testing.T) {
			v := newEnv(t, e)
			f(t, v)
			require.NoError(t, v.close())
		})
	})
}

// While the status says connected, twin and methods work, at once, on every connection. The client
// does not rely on the hub's session state.
func TestConnectedMeansThatTwinAndMethodsWork(t *testing.T) {
	withEachTwin(t, func(t *testing.T, e *env) {
		p := e.dev
		p.listens()
		require.NoError(t, p.obeys())
		for round := range 20 {
			if round%2 == 0 && e.with.protocol == hubdata.MQTT {
				e.hub.Inject(fault.Fault{Kind: fault.ForgetSession})
			}
			require.NoError(t, p.reconnected(), "round %d", round)
			require.Equal(t, device.StateConnected, p.client.Status().State)
			begin := time.Now()
			require.NoError(t, p.calls(answers), "round %d", round)
			require.NoError(t, errors.Join(p.change(), p.told(), p.asks(getTwin), p.asks(patchTwin)), "round %d", round)
			require.Less(t, time.Since(begin), 2*time.Second, "round %d", round)
			switch round % 3 {
			case 0:
				e.hub.Drop("")
			case 1:
				require.NoError(t, p.client.Reconnect())
			case 2:
				e.hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: 2, Code: 3})
				e.hub.Drop("")
			}
			synctest.Wait() // until the client notices the loss
		}
	})
}

// Without retries, while the hub is permanently down, twin calls fail and the client becomes
// Disconnected. Later calls fail at once.
func TestNoRetryEndsTwinCalls(t *testing.T) {
	withEachTwin(t, func(t *testing.T, e *env) {
		p := e.dev
		p.listens()
		require.NoError(t, errors.Join(p.obeys(), p.reconnected(), p.told()))
		require.NoError(t, p.client.SetRetryPolicy(retrypolicy.NoRetry{}))
		gone := e.hub.Inject(fault.Fault{Kind: fault.Absent, For: 100_000 * time.Second})
		result := make(chan error, 1)
		go func() { result <- getTwin(context.Background(), p) }()
		require.Error(t, <-result)
		synctest.Wait()
		require.Equal(t, device.StateDisconnected, p.client.Status().State)
		require.Error(t, getTwin(context.Background(), p), "at once")
		gone.Remove()
		require.NoError(t, p.reconnected())
		require.NoError(t, p.callsWork())
	})
}

// The client and the hub agree on the limits of a twin. The client sends every document that the
// hub accepts and refuses the others itself. The hub counts 8 bytes per number, whatever its
// digits, and counts an array by its elements.
func TestTheHubSaysHowLargeATwinMayBe(t *testing.T) {
	withEachTwin(t, func(t *testing.T, e *env) {
		require.NoError(t, e.dev.reconnected())
		numbers := func(n int) []byte {
			return []byte(`{"readings":[` + strings.Repeat("1234567890123456,", n-1) + "1]}")
		}
		large := numbers(4000)
		require.Greater(t, len(large), 64<<10)
		version, err := e.dev.client.PatchReported(t.Context(), large)
		require.NoError(t, err)
		require.EqualValues(t, 2, version)
		_, err = e.dev.client.PatchReported(t.Context(), numbers(5000))
		require.Contains(t, []transport.Kind{transport.Invalid, transport.TooLarge}, transport.KindOf(err))
		now, err := e.hub.Twin(e.dev.id)
		require.NoError(t, err)
		require.EqualValues(t, 2, now.ReportedVersion)
	})
}

// If the hub denies a device its twin, twin calls fail. Telemetry continues on the same connection.
func TestARefusedTwinLeavesTelemetryAlone(t *testing.T) {
	withTwins(t, classic, func(t *testing.T, e *env) {
		require.NoError(t, e.dev.reconnected())
		switch e.with.protocol {
		case hubdata.AMQP:
			e.hub.Inject(fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkTwinSender,
				Condition: "amqp:not-found", Times: -1})
		case hubdata.MQTT:
			e.hub.Inject(fault.Fault{Kind: fault.RefuseSubscribe, Times: -1})
		}
		before := e.dev.client.Stats().Connections
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := e.dev.client.GetTwin(ctx)
			cancel()
			require.Error(t, err) // MQTT gives no reason, so the call is retried until then
			require.NoError(t, e.dev.client.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		}
		require.Equal(t, before, e.dev.client.Stats().Connections)
	})
}

// The device learns that an answer was not sent, because its connection or its link was lost while
// the method ran.
func TestAnAnswerThatCannotBeSentIsTold(t *testing.T) {
	withTwins(t, classic, func(t *testing.T, e *env) {
		p := e.dev
		require.NoError(t, errors.Join(p.obeys(), p.reconnected()))
		cut := map[string]func(){"connection": func() { e.hub.Drop("") }}
		if e.with.protocol == hubdata.AMQP {
			cut["link"] = func() {
				require.Equal(t, 1, e.hub.DetachLinks(p.id, fault.LinkMethodSender, hubdata.AMQPError{}))
			}
		}
		n := uint64(0)
		for what, cut := range cut {
			require.NoError(t, p.client.HandleMethod("cut", func(context.Context, *device.MethodCall) (int, []byte) {
				cut()
				if e.with.name != "mqtt" { // data in a library's buffer when the loss is noticed counts as sent
					synctest.Wait()
				}
				return 200, nil
			}))
			_, err := e.hub.CallMethod(t.Context(), p.id, hubdata.MethodCall{Name: "cut", ResponseTimeout: 5 * time.Second,
				ConnectTimeout: 30 * time.Second})
			require.Error(t, err, what)
			require.NoError(t, p.reconnected())
			n++
			require.Equal(t, n, p.client.Stats().AnswersLost, what)
			require.NoError(t, p.called(answers))
			synctest.Wait() // the hub has that answer; the device must know this before the next loss
		}
	})
}

// Over AMQP an answer may have to wait for the hub's credit. If its connection is lost meanwhile,
// the device learns that the answer is lost.
func TestAnAnswerThatWaitsForCreditIsTold(t *testing.T) {
	withEachTwin(t, func(t *testing.T, e *env) {
		if e.with.protocol != hubdata.AMQP {
			return
		}
		p := e.dev
		in := e.hub.Inject(fault.Fault{Kind: fault.WithholdCredit, Link: fault.LinkMethodSender})
		require.NoError(t, errors.Join(p.obeys(), p.reconnected()))
		require.Equal(t, 1, in.Fired())
		go func() {
			time.Sleep(2 * time.Second)
			e.hub.Drop("")
		}()
		_, err := e.hub.CallMethod(t.Context(), p.id, hubdata.MethodCall{Name: answers, ResponseTimeout: 5 * time.Second,
			ConnectTimeout: 30 * time.Second})
		require.Error(t, err)
		require.NoError(t, p.reconnected())
		require.EqualValues(t, 1, p.client.Stats().AnswersLost)
		require.NoError(t, p.called(answers))
	})
}

// A call that does not fit into a board's buffer is answered, so its caller does not wait in vain.
func TestACallThatDoesNotFitIsAnswered(t *testing.T) {
	withEachTwin(t, func(t *testing.T, e *env) {
		p := e.dev
		require.NoError(t, errors.Join(p.obeys(), p.reconnected()))
		begin := time.Now()
		result, err := e.hub.CallMethod(t.Context(), p.id, hubdata.MethodCall{Name: answers,
			Payload: []byte(`"` + strings.Repeat("x", 30<<10) + `"`), ResponseTimeout: 30 * time.Second})
		require.NoError(t, err)
		require.Less(t, time.Since(begin), 5*time.Second)
		if e.with.name == "mqtt with the buffers of a board" {
			require.Equal(t, 413, result.Status)
			require.EqualValues(t, 1, p.client.Stats().MethodsRefused)
		} else {
			require.Equal(t, 200, result.Status)
		}
		require.NoError(t, p.called(answers))
	})
}
