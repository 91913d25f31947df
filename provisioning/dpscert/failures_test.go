package dpscert_test

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

type step = dpscert.Step

// near is the time at which the first certificate is renewed at the latest: 20 days after its
// beginning, which is an hour in the past.
const near = 20 * day

// Each fault of the hub is overcome, and the connection and the certificate last as long as they
// can.
func TestFaultsAtTheHub(t *testing.T) {
	certificates := func(ders ...[]byte) []byte {
		body, err := json.Marshal(map[string]any{"correlationId": "x", "certificates": ders})
		require.NoError(t, err)
		return body
	}
	const q, y, n = dpscert.StepRequesting, dpscert.StepRetrying, dpscert.StepRenewed
	for name, row := range map[string]struct {
		fault fault.Fault
		kind  transport.Kind // of the failure
		steps []step
		after time.Duration
	}{
		"throttled": {fault.Fault{Kind: fault.RefuseCertificate}, transport.Throttled, []step{q, y, q, n}, 0},
		"retry-after": {fault.Fault{Kind: fault.RefuseCertificate, RetryAfter: 30 * time.Minute}, transport.Throttled,
			[]step{q, y, q, n}, 30 * time.Minute},
		"retry-after of days": {fault.Fault{Kind: fault.RefuseCertificate, RetryAfter: 99 * time.Hour}, transport.Throttled,
			[]step{q, y, q, n}, time.Hour},
		"server error": {fault.Fault{Kind: fault.RefuseCertificate, Status: 500}, transport.Unavailable, []step{q, y, q, n},
			0},
		"busy": {fault.Fault{Kind: fault.RefuseCertificate, Status: 503, ErrorCode: 503102}, transport.Unavailable,
			[]step{q, y, q, n}, 0},
		"cut before": {fault.Fault{Kind: fault.DropBeforeCertificate}, transport.Network, []step{q, y, q, n}, 0},
		"cut after":  {fault.Fault{Kind: fault.DropAfterCertificate}, transport.Network, []step{q, y, n}, 0},
		"no answer":  {fault.Fault{Kind: fault.SwallowCertificate}, transport.Timeout, []step{q, y, q, n}, 0},
		"slow":       {fault.Fault{Kind: fault.SlowCertificate, Delay: 3 * time.Second}, 0, []step{q, n}, 0},
		"very slow": {fault.Fault{Kind: fault.SlowCertificate, Delay: 150 * time.Second}, transport.Timeout,
			[]step{q, y, n}, 0},
		"twice":      {fault.Fault{Kind: fault.DuplicateCertificate}, 0, []step{q, n}, 0},
		"another id": {fault.Fault{Kind: fault.MisnameCertificate}, transport.Timeout, []step{q, y, q, n}, 0},
		"garbled":    {fault.Fault{Kind: fault.GarbleCertificate}, transport.Protocol, []step{q, y, q, n}, 0},
		"no chain": {fault.Fault{Kind: fault.GarbleCertificate, Bytes: []byte(`{"certificates":[]}`)},
			transport.Protocol, []step{q, y, q, n}, 0},
		"no base64": {fault.Fault{Kind: fault.GarbleCertificate, Bytes: []byte(`{"certificates":["!"]}`)},
			transport.Protocol, []step{q, y, q, n}, 0},
		"wrong types": {fault.Fault{Kind: fault.GarbleCertificate, Bytes: []byte(`{"certificates":{"a":1}}`)},
			transport.Protocol, []step{q, y, q, n}, 0},
		"damaged chain": {fault.Fault{Kind: fault.GarbleCertificate, Bytes: certificates([]byte{1, 2})}, transport.Protocol,
			[]step{q, y, q, n}, 0},
		"huge": {fault.Fault{Kind: fault.GarbleCertificate, Bytes: certificates(make([]byte, 200<<10))},
			transport.Protocol, []step{q, y, q, n}, 0},
		"another key": {fault.Fault{Kind: fault.WrongCertificate}, transport.Protocol, []step{q, y, q, n}, 0},
	} {
		if !testkit.Long() && len(name)/2%2 == 0 { // every other row
			continue
		}
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				in := w.hub.Inject(row.fault)
				r := w.renewer(dpscert.Options{})
				c := w.open("mqtt", r)
				before := w.leaf(r)
				time.Sleep(18 * day)
				require.Equal(t, before, w.leaf(r), "it is too early")
				for w.leaf(r) == before && time.Now().Before(before.NotBefore.Add(near+3*time.Hour)) {
					time.Sleep(30 * time.Second)
				}
				require.NotEqual(t, before, w.leaf(r))
				require.Equal(t, 1, in.Fired())
				told := w.told()
				var steps []step
				var requested time.Duration
				for _, e := range told {
					steps = append(steps, e.Step)
					if e.Step == dpscert.StepRetrying {
						require.ErrorIs(t, e.Err, row.kind)
						requested = e.Delay
					}
				}
				require.Equal(t, row.steps, steps, "%v", told)
				require.GreaterOrEqual(t, requested, row.after)
				require.Less(t, requested, max(row.after*2, 2*time.Minute))
				require.NoError(t, r.Status().Err)
				require.Equal(t, w.leaf(r).Raw, w.store.record.Certificates[0].Chain[0])
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
			})
		})
	}
}

// A refusal for good leads to the provisioning service, or without one to a pause.
func TestRefusalsForGood(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"signing request": {Kind: fault.RefuseCertificate, Status: 400, ErrorCode: 400040, Times: -1},
		"tier":            {Kind: fault.RefuseCertificate, Status: 403, ErrorCode: 403010, Times: -1},
		"no such device":  {Kind: fault.RefuseCertificate, Status: 404, ErrorCode: 404001, Times: -1},
		"unknown status":  {Kind: fault.RefuseCertificate, Status: 418, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				in := w.hub.Inject(f)
				r := w.renewer(dpscert.Options{})
				c := w.open("mqtt", r)
				time.Sleep(near + 3*day)
				require.InDelta(t, 4, in.Fired(), 1, "once a day")
				for i, e := range w.told() {
					require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepFailed}[i%2], e.Step)
					if i%2 == 1 {
						require.Equal(t, day, e.Delay)
						require.Equal(t, 1, e.Attempt)
						refused, ok := errors.AsType[*transport.StatusError](e.Err)
						require.True(t, ok)
						require.Equal(t, f.Status, refused.Status)
						require.Error(t, r.Status().Err)
					}
				}
				require.NoError(t, c.Close())

				w.enroll()
				r = w.renewer(dpscert.Options{})
				c = w.open("mqtt", r)
				time.Sleep(2 * time.Hour)
				require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
				require.Equal(t, "reg-1", w.leaf(r).Subject.CommonName)
				require.NoError(t, c.Close())
			})
		})
	}
}

// After three failures of the hub the provisioning service is asked.
func TestAHubThatFailsLeadsToTheService(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		in := w.hub.Inject(fault.Fault{Kind: fault.RefuseCertificate, Status: 503, Times: -1})
		r := w.renewer(dpscert.Options{})
		w.open("mqtt", r)
		time.Sleep(near)
		require.Equal(t, 3, in.Fired())
		told := w.told()
		require.Equal(t, dpscert.StepRenewed, told[len(told)-1].Step)
		require.False(t, told[len(told)-1].AtHub)
		require.Equal(t, "dev-1", told[len(told)-1].Assignment.DeviceID)
		require.Equal(t, 4, told[len(told)-1].Attempt)
	})
}

// Failures of the provisioning service are retried, with its retry-after as the minimum, and the
// connection lasts.
func TestFaultsAtTheService(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault.Fault
		kind  transport.Kind
		least time.Duration
	}{
		"throttled": {fault.Fault{Kind: fault.RefuseProvisioning, RetryAfter: 20 * time.Minute}, transport.Throttled,
			20 * time.Minute},
		"unavailable": {fault.Fault{Kind: fault.RefuseProvisioning, Status: 503}, transport.Unavailable, 30 * time.Second},
		"cut":         {fault.Fault{Kind: fault.DropAfterProvisioning}, transport.Network, 30 * time.Second},
		"garbled":     {fault.Fault{Kind: fault.GarbleProvisioning}, transport.Protocol, 30 * time.Second},
		"wrong chain": {fault.Fault{Kind: fault.WrongChain}, transport.Protocol, 30 * time.Second},
		"bad chain":   {fault.Fault{Kind: fault.WrongChain, Bytes: []byte("x")}, transport.Protocol, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.enroll()
				in := w.dps.Inject(row.fault)
				r := w.renewer(dpscert.Options{})
				w.open("amqp", r)
				time.Sleep(near + 2*time.Hour)
				require.Equal(t, 1, in.Fired())
				told := w.told()
				require.Len(t, told, 5, "%v", told) // the hub cannot, the service fails and then succeeds
				require.Equal(t, dpscert.StepRetrying, told[2].Step)
				require.ErrorIs(t, told[2].Err, row.kind)
				require.GreaterOrEqual(t, told[2].Delay, row.least)
				require.Equal(t, dpscert.StepRenewed, told[4].Step)
				require.Len(t, w.statuses(), 2, "the connection lasts")
			})
		})
	}
}

// A device without a certificate whose enrollment issues none says so, and one that gets useless
// chains registers seldom: a registration may reset the twin.
func TestRegistrationsWithoutAUsableChain(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault.Fault
		kind  transport.Kind
		text  string
		least int
		most  int
	}{
		"none": {fault.Fault{Kind: fault.GarbleProvisioning, Times: -1, Bytes: []byte(`{"operationId":"o",` +
			`"status":"assigned","registrationState":{"assignedHub":"h.example.test","deviceId":"dev-1"}}`)},
			transport.Unsupported, "the enrollment issues no certificates", 1, 1},
		"useless": {fault.Fault{Kind: fault.WrongChain, Times: -1},
			transport.Protocol, "the issued certificate belongs to another key", 5, 7},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.enroll()
				w.store.record = nil
				w.dps.Inject(row.fault)
				r := w.renewer(dpscert.Options{})
				c, err := device.New(w.creds, r.Around(w.transport("mqtt", r)), nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				require.NoError(t, c.Start())
				time.Sleep(time.Hour)
				registers := 0
				for _, q := range w.dps.Requests() {
					if q.Operation == dpsdata.OperationRegister {
						registers++
					}
				}
				require.ErrorIs(t, r.Status().Err, row.kind)
				require.ErrorContains(t, r.Status().Err, row.text)
				require.GreaterOrEqual(t, registers, row.least)
				require.LessOrEqual(t, registers, row.most)
			})
		})
	}
}

// The user's policy ends the retries for a day.
func TestThePolicyDecides(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.hub.Inject(fault.Fault{Kind: fault.RefuseCertificate, Status: 503, Times: -1})
		r := w.renewer(dpscert.Options{Policy: retrypolicy.MaxAttempts{Policy: retrypolicy.Fixed{Delay: time.Hour},
			Total: 3}})
		w.open("mqtt", r)
		time.Sleep(near + 2*time.Hour)
		const q, y, x = dpscert.StepRequesting, dpscert.StepRetrying, dpscert.StepFailed
		told := w.told()
		var steps []step
		for _, e := range told {
			steps = append(steps, e.Step)
		}
		require.Equal(t, []step{q, y, q, y, q, x}, steps[:6])
		require.Equal(t, time.Hour, told[1].Delay)
		require.ErrorIs(t, told[5].Err, transport.RetryExpired)
		require.ErrorIs(t, told[5].Err, transport.Unavailable)
	})
}

// A policy may return 0 by accident, as a shift that overflows does.
func TestAPolicyWithoutADelayDoesNotRequestWithoutEnd(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		w.hub.Inject(fault.Fault{Kind: fault.RefuseCertificate, Status: 503, Times: -1})
		r := w.renewer(dpscert.Options{Policy: retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 })})
		c := w.open("mqtt", r)
		for len(w.told()) == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		told := len(w.told())
		require.Greater(t, told, 2)
		require.LessOrEqual(t, told, 222, "a request and its failure each 100 ms")
		require.NoError(t, c.Close())
	})
}

// A pending request is repeated with its id over the next connection, and another device's request
// is replaced.
func TestAPendingRequestGoesOn(t *testing.T) {
	slow := &testbroker.Options{Certificates: testbroker.CertificateOptions{Delay: 6 * time.Hour}}
	inWorld(t, slow, func(t *testing.T, w *world) {
		r := w.renewer(dpscert.Options{})
		c := w.open("mqtt", r)
		for len(w.hub.CertificateRequests()) == 0 {
			time.Sleep(time.Minute)
		}
		w.hub.Drop("")
		time.Sleep(2 * time.Hour)
		requests := w.hub.CertificateRequests()
		require.Greater(t, len(requests), 1)
		for _, q := range requests {
			require.Equal(t, requests[0].RequestID, q.RequestID)
			require.Equal(t, 202, q.Status)
		}
		require.NoError(t, c.Close())

		r = w.renewer(dpscert.Options{}) // a restart forgets the id
		c = w.open("mqtt", r)
		defer func() { require.NoError(t, c.Close()) }()
		time.Sleep(62 * time.Minute)
		later := w.hub.CertificateRequests()[len(requests):]
		require.Equal(t, 409005, later[0].Code)
		require.Equal(t, "*", later[1].Replace)
		require.Equal(t, 202, later[1].Status)
	})
}

// The hub's certificate for a request that the provisioning service has made needless does not
// replace the newer one: the program may have deleted its key.
func TestALateAnswerDoesNotReplaceANewerCertificate(t *testing.T) {
	slow := &testbroker.Options{Certificates: testbroker.CertificateOptions{Delay: 6 * time.Hour}}
	inWorld(t, slow, func(t *testing.T, w *world) {
		w.enroll()
		k := &keys{t: t}
		r := w.renewer(dpscert.Options{NewKey: k.make, OpenKey: k.open})
		w.open("mqtt", r)
		for k.made() < 2 {
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Minute)
		told := w.told()
		require.Equal(t, dpscert.StepRenewed, told[len(told)-1].Step)
		require.False(t, told[len(told)-1].AtHub)
		renewed := w.leaf(r)
		time.Sleep(7 * time.Hour)
		require.Equal(t, renewed.Raw, w.leaf(r).Raw)
		require.Empty(t, w.steps())
	})
}

func TestALateAnswerDoesNotReplaceANewerCertificateThatWasOffered(t *testing.T) {
	slow := &testbroker.Options{Certificates: testbroker.CertificateOptions{Delay: 6 * time.Hour}}
	inWorld(t, slow, func(t *testing.T, w *world) {
		r := w.renewer(dpscert.Options{})
		w.open("mqtt", r)
		for len(w.steps()) == 0 { // until the request
			time.Sleep(time.Minute)
		}
		newer := w.issue("dev-1", w.key, 30*day)
		r.Offer(newer)
		_, err := r.Certificate(t.Context())
		require.NoError(t, err)
		require.Equal(t, newer[0], w.leaf(r).Raw)
		time.Sleep(7 * time.Hour)
		require.Equal(t, newer[0], w.leaf(r).Raw)
		require.NotContains(t, w.steps(), dpscert.StepRenewed)
	})
}

// With a clock that cannot be right nothing is requested. Once it is set, the renewal begins.
func TestAClockThatIsNotSet(t *testing.T) {
	for name, unset := range map[string]func(w *world, ahead *atomic.Int64){
		"before Earliest":        func(w *world, _ *atomic.Int64) { w.creds.Earliest = time.Now().Add(12 * time.Hour) },
		"before the certificate": func(_ *world, ahead *atomic.Int64) { ahead.Store(int64(-22 * day)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				time.Sleep(5 * day) // the hub's own certificate is older
				chain := w.issue("dev-1", w.key, 30*day)
				require.NoError(t, w.hub.RemoveDevice("dev-1"))
				_, err := w.hub.AddDeviceX509("dev-1", thumbprint(chain[0]))
				require.NoError(t, err)
				w.store.record = &dpscert.Record{Certificates: []dpscert.Issued{{Chain: chain}}}
				var ahead atomic.Int64
				w.creds.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				time.Sleep(20 * day)
				unset(w, &ahead)
				w.open("mqtt", w.renewer(dpscert.Options{}))
				time.Sleep(10 * time.Hour)
				require.Empty(t, w.hub.CertificateRequests())
				require.Empty(t, w.told())
				ahead.Store(0)
				time.Sleep(4 * time.Hour)
				require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
			})
		})
	}
}

// The Store gets each certificate before it is used, a file keeps it with its key over a restart,
// and a failure to store is told and made good.
func TestRestartsWithNewKeys(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "certificate")
		require.NoError(t, dpscert.File(path).Save(w.store.record))
		k := &keys{t: t}
		o := dpscert.Options{Store: dpscert.File(path), NewKey: k.make, OpenKey: k.open}
		for i := range 3 {
			r := w.renewer(o)
			c := w.open("mqtt", r)
			if i > 0 {
				cert, err := r.Certificate(t.Context())
				require.NoError(t, err)
				require.Equal(t, k.all[i-1].Public(), public(cert))
			}
			for k.made() == i {
				time.Sleep(time.Hour)
			}
			require.NoError(t, c.Close())
		}
		require.Equal(t, []step{0, 2, 0, 2, 0, 2}, w.steps())
		stored, err := dpscert.File(path).Load()
		require.NoError(t, err)
		require.Equal(t, "3", stored.Certificates[0].Key)
		require.Equal(t, "2", stored.Certificates[1].Key)

		k.fail = errors.New("the secure element is busy: PIN=1, pwd=abc1")
		r := w.renewer(o)
		c := w.open("mqtt", r)
		time.Sleep(near)
		require.NoError(t, c.Close())
		told := w.told()
		require.Equal(t, dpscert.StepRetrying, told[1].Step)
		require.ErrorContains(t, told[1].Err, "the secure element is busy: PIN=1, pwd=(hidden)")
		require.ErrorIs(t, told[1].Err, transport.Unavailable)
	})
}

func TestErrorsOfTheStoreAndOfKeysShowNoSecret(t *testing.T) {
	const url = "https://vault.example/?sig="
	failed := errors.New(url + "abc1")
	for _, cause := range []error{failed, &transport.Error{Kind: transport.Unavailable, Err: failed}} {
		for _, o := range []dpscert.Options{
			{Store: failingStore{cause}},
			{
				Store:   &memory{record: &dpscert.Record{Certificates: []dpscert.Issued{{Chain: [][]byte{{1}}, Key: "1"}}}},
				NewKey:  func(context.Context) (crypto.Signer, string, error) { return nil, "", cause },
				OpenKey: func(context.Context, string) (crypto.Signer, error) { return nil, cause },
			},
		} {
			var texts []string
			o.OnEvent = func(e dpscert.Event) { texts = append(texts, e.String()) }
			r, err := dpscert.New(newKey(t), &o)
			require.NoError(t, err)
			_, err = r.Certificate(t.Context())
			texts = append(texts, err.Error())
			require.Contains(t, strings.Join(texts, "; "), url+"(hidden)")
			require.NotContains(t, strings.Join(texts, "; "), "abc1")
		}
	}
}

type failingStore struct{ err error }

func (s failingStore) Load() (*dpscert.Record, error) { return nil, s.err }
func (s failingStore) Save(*dpscert.Record) error     { return s.err }

func TestAStoreThatFailsOnce(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.store.err = errors.New("no space")
		r := w.renewer(dpscert.Options{})
		w.open("mqtt", r)
		time.Sleep(near + 2*time.Hour)
		require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepStoreFailed, dpscert.StepRenewed}, w.steps())
		require.Equal(t, 2, w.store.saved())
		require.Equal(t, w.leaf(r).Raw, w.store.record.Certificates[0].Chain[0])
	})
}

// The methods of an error may panic, as those of a nil pointer do.
func TestErrorsWhoseMethodsPanic(t *testing.T) {
	var none *os.PathError
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.store.err = none
		asked := 0
		k := &keys{t: t}
		r := w.renewer(dpscert.Options{OpenKey: k.open,
			NewKey: func(ctx context.Context) (crypto.Signer, string, error) {
				if asked++; asked == 1 {
					return nil, "", none
				}
				return k.make(ctx)
			}})
		w.open("mqtt", r)
		time.Sleep(near + 2*day)
		for _, e := range w.events {
			require.NotErrorIs(t, e.Err, os.ErrNotExist)
		}
		require.Equal(t, 2, asked)
		require.NotEqual(t, w.first[0], w.leaf(r).Raw)
		require.Equal(t, 2, w.store.saved())
	})
	for _, o := range []dpscert.Options{{Store: failingStore{none}}, {
		Store:   &memory{record: &dpscert.Record{Certificates: []dpscert.Issued{{Chain: [][]byte{{1}}, Key: "1"}}}},
		NewKey:  func(context.Context) (crypto.Signer, string, error) { return nil, "", none },
		OpenKey: func(context.Context, string) (crypto.Signer, error) { return nil, none },
	}} {
		o.OnEvent = func(e dpscert.Event) { require.NotErrorIs(t, e.Err, os.ErrNotExist) }
		r, err := dpscert.New(newKey(t), &o)
		require.NoError(t, err)
		_, err = r.Certificate(t.Context())
		require.NotNil(t, transport.Find(err))
	}
	_, err := dpscert.Request("a", failingKey{newKey(t)})
	require.NotErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, err, transport.Invalid)
}

// A Store that cannot be read for the moment has not lost its certificates: it is read again, and
// an older chain does not replace them.
func TestAStoreThatCannotBeReadForTheMoment(t *testing.T) {
	for _, offer := range []bool{false, true} {
		for _, registrar := range []bool{false, true} {
			t.Run(fmt.Sprintf("offer %v, registrar %v", offer, registrar), func(t *testing.T) {
				inWorld(t, nil, func(t *testing.T, w *world) {
					if registrar {
						w.enroll()
					}
					time.Sleep(time.Hour)
					newest := w.issue("dev-1", w.key, 29*day)
					require.NoError(t, w.hub.RemoveDevice("dev-1"))
					_, err := w.hub.AddDeviceX509("dev-1", thumbprint(newest[0]))
					require.NoError(t, err)
					w.store.record.Certificates = []dpscert.Issued{{Chain: newest}, {Chain: w.first}}
					w.store.busy = errors.New("too many open files")
					r := w.renewer(dpscert.Options{})
					if offer {
						r.Offer(w.first)
					}
					w.open("mqtt", r)
					require.Equal(t, newest[0], w.leaf(r).Raw)
					require.Zero(t, w.store.saved())
					require.Equal(t, []step{dpscert.StepStoreFailed}, w.steps())
				})
			})
		}
	}
}

// A Store that can never be read does not keep a device off that can register.
func TestAStoreThatCannotBeRead(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		w.store.broken = errors.New("input/output error")
		began := time.Now()
		w.open("mqtt", w.renewer(dpscert.Options{}))
		told := w.steps()
		require.Equal(t, []step{dpscert.StepStoreFailed, dpscert.StepRequesting, dpscert.StepRenewed}, told[len(told)-3:])
		require.Greater(t, time.Since(began), 10*time.Minute, "the Store may come back")
	})
}

// A damaged file has no certificates: the device registers, and replaces it.
func TestADamagedFileIsReplaced(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.enroll()
		path := filepath.Join(t.TempDir(), "certificate")
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
		r := w.renewer(dpscert.Options{Store: dpscert.File(path)})
		w.open("mqtt", r)
		require.Equal(t, []step{dpscert.StepStoreFailed, dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
		stored, err := dpscert.File(path).Load()
		require.NoError(t, err)
		require.Equal(t, w.leaf(r).Raw, stored.Certificates[0].Chain[0])
	})
}

// A new certificate that the hub refuses gives way to the previous one, and another one is
// requested.
func TestARefusedCertificateGivesWayToThePreviousOne(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.hub.Inject(fault.Fault{Kind: fault.ForgetCertificate})
		r := w.renewer(dpscert.Options{})
		c := w.open("mqtt", r)
		first := w.leaf(r)
		time.Sleep(near)
		require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
		w.hub.Drop("")
		time.Sleep(30 * time.Minute)
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.Equal(t, first.Raw, w.leaf(r).Raw)
		require.Equal(t, []step{dpscert.StepPreviousUsed}, w.steps())
		time.Sleep(time.Hour)
		require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRenewed}, w.steps())
		w.hub.Drop("")
		time.Sleep(time.Minute)
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("y")}))
		require.NotEqual(t, first.Raw, w.leaf(r).Raw)
		require.Empty(t, w.steps())
	})
}

// A device that was off until its certificate ended asks the service first. Without one, the
// connect fails.
func TestACertificateThatHasEnded(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		time.Sleep(31 * day)
		r := w.renewer(dpscert.Options{})
		_, err := r.Around(w.transport("mqtt", r)).Dial(t.Context(), &transport.Config{Creds: w.creds})
		require.ErrorIs(t, err, transport.Unauthorized)
		require.ErrorContains(t, err, "expired at")
		w.store.record = nil
		r = w.renewer(dpscert.Options{})
		_, err = r.Around(w.transport("mqtt", r)).Dial(t.Context(), &transport.Config{Creds: w.creds})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "no certificate")

		w.enroll()
		w.dps.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 503})
		c := w.open("mqtt", w.renewer(dpscert.Options{}))
		require.Equal(t, []step{dpscert.StepRequesting, dpscert.StepRetrying, dpscert.StepRequesting,
			dpscert.StepRenewed}, w.steps())
		require.NoError(t, c.Close())
	})
}

// A renewal that succeeds in the last minutes replaces the connection before its certificate ends,
// whether the client plans that or not. Without a new certificate, no connection is replaced.
func TestALateRenewalReplacesTheConnection(t *testing.T) {
	for name, renewAt := range map[string]float64{"planned by the client": 0, "not planned": -1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.renewAt = renewAt
				end := time.Now().Add(30 * day)
				in := w.hub.Inject(fault.Fault{Kind: fault.RefuseCertificate, Status: 503, Times: -1})
				r := w.renewer(dpscert.Options{Policy: retrypolicy.Fixed{Delay: 10 * time.Minute}})
				c := w.open("mqtt", r)
				time.Sleep(time.Until(end.Add(-time.Hour)))
				in.Remove()
				require.Len(t, w.statuses(), 2, "no connection was replaced for nothing")
				time.Sleep(time.Until(end.Add(-30 * time.Second)))
				require.Greater(t, w.leaf(r).NotAfter, end)
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
				require.Greater(t, len(w.statuses()), 3)
			})
		})
	}
}

// Close ends a renewal in any step within a second, and leaves no goroutine.
func TestCloseDuringARenewal(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"no answer":  {Kind: fault.SwallowCertificate, Times: -1},
		"no suback":  {Kind: fault.SwallowSuback, Times: -1},
		"throttled":  {Kind: fault.RefuseCertificate, Times: -1},
		"half open":  {Kind: fault.HalfOpen},
		"no service": {Kind: fault.RefuseCertificate, Status: 403, ErrorCode: 403010, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				if name == "no service" {
					w.enroll()
					w.dps.Inject(fault.Fault{Kind: fault.SwallowProvisioning, Times: -1})
				}
				synctest.Wait()
				before := testkit.Goroutines()
				r := w.renewer(dpscert.Options{})
				c := w.open("mqtt", r)
				time.Sleep(time.Until(r.Status().Renew) - 5*time.Second) // sooner than a ping can fail
				w.hub.Inject(f)
				time.Sleep(15 * time.Second)
				require.Equal(t, dpscert.StepRequesting, w.told()[0].Step)
				began := time.Now()
				require.NoError(t, c.Close())
				require.Less(t, time.Since(began), 2*time.Second)
				w.hub.Drop("")
				w.dps.Drop()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.LessOrEqual(t, testkit.Goroutines(), before+1, "the service's server may run")
			})
		})
	}
}

// A callback that panics in a renewal, or ends its goroutine, fails the request. The connection
// lasts, and the next request succeeds.
func TestCallbacksThatPanicInARenewal(t *testing.T) {
	for _, name := range []string{"the key", "the key ends its goroutine", "Options.Policy", "Options.Rand"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				var broken atomic.Bool
				check := func(callback string) {
					if broken.Load() && strings.HasPrefix(name, callback) {
						if strings.Contains(name, "ends") {
							runtime.Goexit()
						}
						panic("broken")
					}
				}
				key := brokenKey{w.key, func() { check("the key") }}
				k := &keys{t: t}
				r := w.renewer(dpscert.Options{OpenKey: k.open,
					NewKey: func(context.Context) (crypto.Signer, string, error) { return key, "1", nil },
					Policy: retrypolicy.Func(func(int, error) (bool, time.Duration) {
						check("Options.Policy")
						return true, time.Minute
					}),
					Rand: func() uint64 {
						check("Options.Rand")
						return 0
					}})
				c := w.open("mqtt", r)
				in := w.hub.Inject(fault.Fault{Kind: fault.RefuseCertificate, Status: 503, Times: -1})
				broken.Store(true)
				time.Sleep(near)
				steps := w.told()
				last := steps[len(steps)-1]
				require.Equal(t, dpscert.StepFailed, last.Step)
				require.ErrorIs(t, last.Err, transport.Invalid)
				require.ErrorContains(t, last.Err, name[:7])
				require.Equal(t, device.StateConnected, c.Status().State)
				in.Remove()
				broken.Store(false)
				time.Sleep(day + time.Hour)
				require.NotEqual(t, w.first[0], w.leaf(r).Raw)
				require.Len(t, w.statuses(), 2, "the connection lasts")
			})
		})
	}
}

// A clock that panics counts as unset: nothing is requested.
func TestAClockThatPanicsInARenewal(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		var broken atomic.Bool
		w.creds.Now = func() time.Time {
			if broken.Load() {
				panic("broken")
			}
			return time.Now()
		}
		r := w.renewer(dpscert.Options{})
		session, err := r.Around(&scripted{}).Dial(t.Context(), &transport.Config{Creds: w.creds, Sink: never{t}})
		require.NoError(t, err)
		broken.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 40*day)
		defer cancel()
		require.ErrorIs(t, session.Run(ctx), context.DeadlineExceeded)
		require.Empty(t, w.told())
	})
}

// A Renewer serves one client at a time, through whichever of its transports.
func TestOneClientATime(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		r := w.renewer(dpscert.Options{})
		first, second := r.Around(&scripted{}), r.Around(&scripted{})
		cfg := &transport.Config{Creds: w.creds, Sink: never{t}}
		session, err := first.Dial(t.Context(), cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- session.Run(ctx) }()
		for _, tr := range []transport.Transport{first, second} {
			_, err = tr.Dial(t.Context(), cfg)
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, "one Renewer for each client")
		}
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		session, err = second.Dial(t.Context(), cfg)
		require.NoError(t, err)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, session.Run(ctx), context.Canceled)
	})
}

// failingKey is a key that returns a nil pointer as the error.
type failingKey struct{ crypto.Signer }

func (failingKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, (*os.PathError)(nil)
}

// brokenKey is a key that calls a function before it signs.
type brokenKey struct {
	crypto.Signer
	check func()
}

func (k brokenKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.check()
	return k.Signer.Sign(rand, digest, opts)
}

func TestWrongOptions(t *testing.T) {
	key := newKey(t)
	for want, make := range map[string]func() (*dpscert.Renewer, error){
		"key is nil":    func() (*dpscert.Renewer, error) { return dpscert.New(nil, nil) },
		"AnswerTimeout": func() (*dpscert.Renewer, error) { return dpscert.New(key, &dpscert.Options{AnswerTimeout: -1}) },
		"TryAgainAfter": func() (*dpscert.Renewer, error) { return dpscert.New(key, &dpscert.Options{TryAgainAfter: -1}) },
		"ServiceOnly":   func() (*dpscert.Renewer, error) { return dpscert.New(key, &dpscert.Options{ServiceOnly: true}) },
		"belong together": func() (*dpscert.Renewer, error) {
			return dpscert.New(key, &dpscert.Options{OpenKey: func(context.Context, string) (crypto.Signer, error) {
				return nil, nil
			}})
		},
		"Policy": func() (*dpscert.Renewer, error) {
			return dpscert.New(key, &dpscert.Options{Policy: retrypolicy.MaxAttempts{}})
		},
	} {
		_, err := make()
		require.ErrorIs(t, err, transport.Invalid, want)
		if want != "Policy" {
			require.ErrorContains(t, err, want)
		}
	}
}

// A restart does not change when the certificate is renewed, and two devices differ.
func TestTheTimeOfARenewalIsPartOfTheCertificate(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		times := map[time.Time]bool{}
		for range 20 {
			w.store.record = &dpscert.Record{Certificates: []dpscert.Issued{{Chain: w.issue("dev-1", w.key, 30*day)}}}
			var at time.Time
			for range 2 {
				r := w.renewer(dpscert.Options{})
				leaf := w.leaf(r)
				life := leaf.NotAfter.Sub(leaf.NotBefore)
				at = r.Status().Renew
				require.LessOrEqual(t, at, leaf.NotBefore.Add(life/3*2))
				require.Greater(t, at, leaf.NotBefore.Add(life/3*2-life/20))
				times[at] = true
			}
		}
		require.Len(t, times, 20)
	})
}

// A chain from outside is taken if it is newer and belongs to the key.
func TestOffers(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		r := w.renewer(dpscert.Options{})
		for _, ignored := range [][][]byte{nil, {{1}}, w.issue("dev-1", newKey(t), 60*day), w.first} {
			r.Offer(ignored)
			require.Equal(t, w.first[0], w.leaf(r).Raw)
		}
		require.Zero(t, w.store.saved())
		time.Sleep(day)
		newer := w.issue("dev-1", w.key, 30*day)
		r.Offer(newer)
		require.Equal(t, newer[0], w.leaf(r).Raw)
		require.Equal(t, 1, w.store.saved())
		r.Offer(w.first)
		require.Equal(t, newer[0], w.leaf(r).Raw)
	})
}
