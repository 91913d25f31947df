package device_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestATimeoutNamesTheOptionThatItComesFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c, w := client(t, f, &device.Options{OperationTimeout: time.Second, AckTimeout: time.Minute})
		open(t, c)
		err := c.Send(t.Context(), msg(1))
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorContains(t, err, "within OperationTimeout")
		time.Sleep(2 * time.Minute)
		var lost error
		for _, s := range w.list() {
			if s.Reason == device.ReasonConnectionLost {
				lost = s.Err
			}
		}
		require.ErrorContains(t, lost, "within AckTimeout")
	})
}

func TestCallsAfterCloseSayThatCloseWasCalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		require.ErrorContains(t, c.Reconnect(), "call Open or Start")
		open(t, c)
		require.NoError(t, c.Close())
		for name, err := range map[string]error{
			"Reconnect": c.Reconnect(), "SetRetryPolicy": c.SetRetryPolicy(retrypolicy.NoRetry{}),
			"SetMessagePolicy": c.SetMessagePolicy(nil),
		} {
			require.ErrorIs(t, err, transport.Closed, name)
			require.ErrorContains(t, err, "Close was called before "+name)
		}
	})
}

func TestCloseInsideAHandlerSaysWhereToCallIt(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		closed := make(chan error, 1)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			closed <- c.Close()
			return nil
		})
		open(t, c)
		start := time.Now()
		require.True(t, f.last().deliver("m"))
		require.ErrorContains(t, <-closed, "in another goroutine")
		require.Equal(t, 5*time.Second, time.Since(start), "CloseTimeout")
	})
}

// wireless is a transport that knows that it only sends.
type wireless struct{ *fake }

func (wireless) Lacks(*transport.Credentials, transport.Features) string {
	return "not available over string and tin cans"
}

func TestWhatATransportLacksIsRefusedAtTheCall(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c := made(t, creds(), wireless{f}, nil)
		open(t, c)
		err := c.HandleMethod("reboot", ok)
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "direct methods are not available over string and tin cans")
		err = c.HandleMessages(accept)
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "cloud-to-device messages are not available over string and tin cans")
		err = c.HandleDesired(func(context.Context, device.Desired) {})
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "desired properties are not available over string and tin cans")
		require.NoError(t, c.HandleDesired(nil))
		_, err = c.GetTwin(t.Context())
		require.ErrorContains(t, err, "device twins are not available over string and tin cans")
		_, err = c.PatchReported(t.Context(), []byte("{}"))
		require.ErrorIs(t, err, transport.Unsupported)
		time.Sleep(time.Hour)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, f.dialTimes(), 1, "the connection stays")
		require.NoError(t, c.Send(t.Context(), msg(1)))
	})
}

func TestAProcessThatWasStoppedReadsAnswersBeforeItJudgesTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // the wake-up
		dials int
	}{"the answer has arrived": {100 * time.Millisecond, 1}, "there is no answer": {time.Hour, 2}} {
		run(t, name, func(t *testing.T) {
			f := &fake{}
			const stop = 45 * time.Second
			f.verdict = func(conn int, it transport.Item) error {
				if conn > 1 {
					return nil
				}
				s := f.last()
				time.AfterFunc(stop+c.after, func() {
					select {
					case <-s.dead:
					default:
						s.cfg.Sink.Done(it.Tag, nil)
					}
				})
				return errHold
			}
			once := false
			client, _ := client(t, f, &device.Options{AckTimeout: 30 * time.Second,
				Trace: &device.Trace{Sent: func(int) {
					if !once { // the loop stands still as in a stopped process
						once = true
						time.Sleep(stop)
					}
				}}})
			open(t, client)
			require.NoError(t, client.Send(t.Context(), msg(1)))
			require.Len(t, f.dialTimes(), c.dials)
		})
	}
}
