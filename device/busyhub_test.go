package device_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// A hub that sends the next message or call before the loop has handed over the result of the one
// before keeps no telemetry back.
func TestAHubThatAlwaysHasMoreDelaysNoTelemetry(t *testing.T) {
	const enough = 1000
	for name, begin := range map[string]func(f *fake, o *device.Trace, more func() (ref string)){
		"calls of an unknown method": func(f *fake, _ *device.Trace, more func() string) {
			f.request = func(s *fakeSession, _ *transport.Request) (transport.Reply, bool) {
				if ref := more(); ref != "" {
					s.call(ref, "unknown", "")
				}
				return transport.Reply{}, true
			}
		},
		"messages": func(f *fake, o *device.Trace, more func() string) {
			o.Settled = func(transport.Outcome) {
				if ref := more(); ref != "" {
					f.last().deliver(ref)
					synctest.Wait() // its verdict waits for the loop
				}
			}
		},
	} {
		run(t, name, func(t *testing.T) {
			f, n, at, o := &fake{}, 0, 0, &device.Trace{}
			o.Sent = func(int) { at = n }
			c, _ := client(t, f, &device.Options{Trace: o})
			begin(f, o, func() string {
				if n++; n == 1 {
					require.NoError(t, c.Enqueue(context.Background(), msg(1), nil))
				}
				if n > enough {
					return ""
				}
				return strconv.Itoa(n)
			})
			require.NoError(t, c.HandleMessages(accept))
			require.NoError(t, c.HandleMethod("known", ok))
			open(t, c)
			f.last().deliver("0")
			f.last().call("0", "unknown", "")
			time.Sleep(time.Second)
			synctest.Wait()
			require.Less(t, at, enough/2, "results handed over before the message")
			require.Equal(t, ids(1, 1), f.ids())
		})
	}
}
