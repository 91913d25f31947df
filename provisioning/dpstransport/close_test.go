package dpstransport_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Close ends a registration in any step within a second, and leaves no goroutine.
func TestCloseDuringARegistration(t *testing.T) {
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	carriers := map[string]func(*netopt.Options) provisioning.Carrier{
		"http": func(o *netopt.Options) provisioning.Carrier { return dpshttp.New(o) },
		"mqtt": func(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) },
	}
	ports := map[string]testbroker.Port{"http": testbroker.PortHTTPS, "mqtt": testbroker.PortMQTTS}
	for name, in := range map[string]struct {
		fault fault.Fault
		dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	}{
		"dial":           {dial: hang},
		"handshake":      {fault: fault.Fault{Kind: fault.MuteHandshake, Times: -1}},
		"register":       {fault: fault.Fault{Kind: fault.SwallowProvisioning, Times: -1}},
		"wait for poll":  {fault: fault.Fault{Kind: fault.WrongRetryAfter, Text: "3600", Times: -1}},
		"wait for retry": {fault: fault.Fault{Kind: fault.RefuseProvisioning, RetryAfter: time.Hour, Times: -1}},
		"poll":           {fault: fault.Fault{Kind: fault.SwallowProvisioning, Route: fault.RouteOperation, Times: -1}},
	} {
		for protocol, carrier := range carriers {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				testkit.In2030(t, func(t *testing.T) {
					d, err := testbroker.NewDPS(nil)
					require.NoError(t, err)
					defer func() { require.NoError(t, d.Close()) }()
					e, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001"})
					require.NoError(t, err)
					if in.fault.Kind != 0 {
						d.Inject(in.fault)
					}
					o := &netopt.Options{Dial: in.dial, TLS: d.ClientTLS()}
					if o.Dial == nil {
						o.Dial = d.Dial(ports[protocol])
					}
					sign, err := transport.SharedKey(e.PrimaryKey)
					require.NoError(t, err)
					registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
						RegistrationID: "reg-0001", Sign: sign}, carrier(o), nil)
					require.NoError(t, err)
					tr, err := dpstransport.New(registrar, (&hubs{t: t}).make, nil)
					require.NoError(t, err)
					synctest.Wait()
					before := testkit.Goroutines()
					c, err := device.New(tr.Credentials(), tr, nil)
					require.NoError(t, err)
					require.NoError(t, c.Start())
					time.Sleep(20 * time.Second)
					began := time.Now()
					require.NoError(t, c.Close())
					require.Less(t, time.Since(began), time.Second)
					synctest.Wait()
					d.Drop()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if protocol == "http" {
						before++ // the service's server, which the first connection starts
					}
					require.LessOrEqual(t, testkit.Goroutines(), before)
				})
			})
		}
	}
}

// One registrar may serve several calls at a time.
func TestRegistrationsAtTheSameTime(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &locked{}
		sign, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		c, err := provisioning.New(&provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: sign,
			SecondSign: sign}, s, &provisioning.Options{Spread: time.Minute})
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				a, err := c.Register(t.Context())
				if err != nil || a.Hub == "" || c.Credentials(a).Validate() != nil {
					t.Error(a, err)
				}
			})
		}
		all.Wait()
	})
}

// locked is a service for concurrent use. Each session is its own.
type locked struct{ mu sync.Mutex }

func (s *locked) Open(context.Context, *provisioning.Login) (provisioning.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &service{delay: time.Second}, nil
}

// A short time-out of attempts does not cut a registration that goes on.
func TestAShortDialTimeout(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{delay: 30 * time.Second}
		tr := setup(t, s, &hubs{block: true}, 1, nil)
		c, err := device.New(tr.Credentials(), tr, &device.Options{DialTimeout: 3 * time.Second})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.NoError(t, c.Open(ctx))
		require.EqualValues(t, 1, s.opened.Load())
		require.NoError(t, c.Close())
	})
}
