package dpscert_test

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// A registrar with a key makes credentials that sign. The certificate goes first.
func TestTheCertificateGoesBeforeTheKey(t *testing.T) {
	for _, engine := range []string{"mqtt", "amqp", "http"} {
		t.Run(engine, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.enroll()
				w.store.record = nil
				r := w.renewer(dpscert.Options{})
				tr, err := dpstransport.New(w.registrar, func(creds *transport.Credentials,
					_ *provisioning.Assignment) transport.Transport {
					w.creds = creds
					return r.Around(w.transport(engine, r))
				}, nil)
				require.NoError(t, err)
				c, err := device.New(tr.Credentials(), tr, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				require.NoError(t, c.Open(t.Context()))
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
				time.Sleep(25 * day)
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("y")}))
				require.NoError(t, r.Status().Err)
				require.NotContains(t, w.steps(), dpscert.StepPreviousUsed)
				plain := 0
				for _, q := range w.dps.Requests() {
					if q.Operation == dpsdata.OperationRegister && len(q.CSR) == 0 {
						plain++
					}
				}
				require.Equal(t, 1, plain, "the hub has refused nothing")
			})
		})
	}
}

// A key that cannot be opened for the moment is no reason to forget its certificate.
func TestAKeyThatIsBusy(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.store.record.Certificates[0].Key = "1"
		busy := 2
		r := w.renewer(dpscert.Options{
			NewKey: func(context.Context) (crypto.Signer, string, error) { return newKey(t), "2", nil },
			OpenKey: func(context.Context, string) (crypto.Signer, error) {
				if busy--; busy >= 0 {
					return nil, &transport.Error{Kind: transport.Unavailable, Err: errors.New("the token is busy")}
				}
				return w.key, nil
			},
		})
		w.open("mqtt", r)
		require.Equal(t, w.first[0], w.leaf(r).Raw)
	})
}

// The certificate in use needs no other key.
func TestTheKeyOfThePreviousCertificateIsBusy(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		previous := dpscert.Issued{Chain: w.issue("dev-1", newKey(t), 20*day), Key: "1"}
		w.store.record.Certificates = []dpscert.Issued{{Chain: w.first, Key: "2"}, previous}
		busy := &transport.Error{Kind: transport.Unavailable, Err: errors.New("the token is busy")}
		r := w.renewer(dpscert.Options{
			NewKey: func(context.Context) (crypto.Signer, string, error) { return newKey(t), "3", nil },
			OpenKey: func(_ context.Context, name string) (crypto.Signer, error) {
				if name == "1" {
					return nil, busy
				}
				return w.key, nil
			},
		})
		c, err := device.New(w.creds, r.Around(w.transport("mqtt", r)), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, c.Open(ctx))
		require.Equal(t, w.first[0], w.leaf(r).Raw)
		told := w.told()
		require.Len(t, told, 1)
		require.Equal(t, dpscert.StepKeyFailed, told[0].Step)
		require.ErrorIs(t, told[0].Err, busy)
		require.Zero(t, w.store.saved())
	})
}

// A refusal of the provisioning service is not one of the hub.
func TestARefusalOfTheServiceKeepsTheCertificate(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		newer := w.issue("dev-1", w.key, 20*day)
		w.store.record.Certificates = []dpscert.Issued{{Chain: newer}, {Chain: w.first}}
		w.dps.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 401, Times: -1})
		r := w.renewer(dpscert.Options{})
		tr, err := dpstransport.New(w.registrar, func(creds *transport.Credentials,
			_ *provisioning.Assignment) transport.Transport {
			w.creds = creds
			return w.transport("mqtt", r)
		}, nil)
		require.NoError(t, err)
		c, err := device.New(tr.Credentials(), r.Around(tr), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
		synctest.Wait()
		require.Equal(t, newer[0], w.leaf(r).Raw)
		require.Empty(t, w.steps())
	})
}

// The same the other way around: the certificate has ended, and the service issues no other one.
func TestTheServiceRefusesACertificate(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		r := w.renewer(dpscert.Options{})
		var steps []dpstransport.Event
		tr, err := dpstransport.New(w.registrar, func(creds *transport.Credentials,
			_ *provisioning.Assignment) transport.Transport {
			w.creds = creds
			return r.Around(w.transport("mqtt", r))
		}, &dpstransport.Options{OnEvent: func(e dpstransport.Event) { steps = append(steps, e) }})
		require.NoError(t, err)
		c, err := device.New(tr.Credentials(), tr, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		time.Sleep(40 * day) // the stored certificate ends
		in := w.dps.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 401, After: 2, Times: -1})
		err = c.Open(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotContains(t, err.Error(), "hub refused")
		require.NotContains(t, steps[2].Err.Error(), "hub refused")
		require.Len(t, steps, 4, "asked once more")
		require.Equal(t, 3, in.Fired())
	})
}

// Over AMQP with a certificate the hub refuses a device with its first link. That leads to the
// previous certificate, or to another one of the service, with and without subscriptions.
func TestACertificateThatIsRefusedAfterTheConnect(t *testing.T) {
	for name, listen := range map[string]bool{"a subscription": true, "a message": false} {
		for previous, steps := range map[bool][]step{true: {dpscert.StepPreviousUsed},
			false: {dpscert.StepRequesting, dpscert.StepRenewed}} {
			t.Run(fmt.Sprintf("%s, previous %v", name, previous), func(t *testing.T) {
				inWorld(t, nil, func(t *testing.T, w *world) {
					w.enroll()
					newer := dpscert.Issued{Chain: w.issue("dev-1", w.key, 29*day)} // the hub does not know it
					w.store.record.Certificates = append([]dpscert.Issued{newer}, w.store.record.Certificates...)
					if !previous {
						w.store.record.Certificates = w.store.record.Certificates[:1]
					}
					r := w.renewer(dpscert.Options{})
					c, err := device.New(w.creds, r.Around(w.transport("amqp", r)), nil)
					require.NoError(t, err)
					defer func() { require.NoError(t, c.Close()) }()
					if listen {
						c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					require.NoError(t, c.Open(ctx))
					require.NoError(t, c.Send(ctx, &transport.Message{Body: []byte("x")}))
					require.Equal(t, steps, w.steps())
					require.NotEqual(t, newer.Chain[0], w.leaf(r).Raw)
				})
			})
		}
	}
}

// A hub that refuses every certificate ends the client: the service is asked once.
func TestAHubThatRefusesEveryCertificateAfterTheConnect(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		w.hub.Inject(fault.Fault{Kind: fault.RefuseAttach, Condition: "amqp:unauthorized-access", Times: -1})
		r := w.renewer(dpscert.Options{})
		c, err := device.New(w.creds, r.Around(w.transport("amqp", r)), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
		for range 2 { // the client is opened again
			require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
			require.Equal(t, device.StateDisconnected, c.Status().State)
			require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRenewed, dpscert.StepPreviousUsed}, w.steps())
		}
	})
}

// The certificates of a device are tried in their order within one attempt, without a delay: the
// newest one, the one before, and one that the service issues for the bootstrap credential.
func TestCertificatesAreTriedWithinOneAttempt(t *testing.T) {
	for previous, steps := range map[bool][]step{true: {dpscert.StepPreviousUsed},
		false: {dpscert.StepRequesting, dpscert.StepRenewed}} {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.enroll()
			newer := dpscert.Issued{Chain: w.issue("dev-1", w.key, 29*day)} // the hub does not know it
			w.store.record.Certificates = append([]dpscert.Issued{newer}, w.store.record.Certificates...)
			if !previous {
				w.store.record.Certificates = w.store.record.Certificates[:1]
			}
			c := w.open("mqtt", w.renewer(dpscert.Options{}))
			synctest.Wait()
			require.Equal(t, steps, w.steps())
			for _, s := range w.statuses() {
				require.Zero(t, s.Retry, "%v", s)
			}
			require.NoError(t, c.Close())
		})
	}
}

// A hub of the profile mqttV5 issues no certificates. The service is asked in its place, at once,
// and the connection is replaced with the new one in time.
func TestTheServiceIssuesTheCertificatesOfAHubOfTheProfileMQTTv5(t *testing.T) {
	inWorld(t, &testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}}, func(t *testing.T, w *world) {
		w.enroll()
		r := w.renewer(dpscert.Options{})
		c := w.open("mqtt5", r)
		first := w.leaf(r)
		time.Sleep(near)
		require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
		require.NotEqual(t, first.Raw, w.leaf(r).Raw)
		for range 20 { // months
			time.Sleep(10 * day)
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		}
		require.NoError(t, c.Close())
		for _, s := range w.statuses() {
			require.NotEqual(t, device.ReasonConnectionLost, s.Reason, "%v", s)
		}
	})
}
