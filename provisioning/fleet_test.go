package provisioning_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// fleetMinutes is how long the service is busy with the fleet, at its limit. How a fleet behaves
// depends on that, and little on the number of devices.
const fleetMinutes = 10

// fleetSize returns the number of devices: 1,000, or as in the environment.
func fleetSize(t *testing.T) int {
	text := os.Getenv("HUBLINE_FLEET")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "HUBLINE_FLEET")
	return n
}

// herd says how a fleet came through.
type herd struct {
	took   time.Duration // until the last device had its assignment
	beyond float64       // requests of a device beyond a register and a poll
	first  float64       // the most requests in a second of the first minute, as a part of the fleet
	peak   float64       // the same, later
}

type registerFunc func(context.Context, *provisioning.Identity, provisioning.Carrier) error

// All devices of a fleet start at the same moment, and the service takes a tenth of them in a
// minute. Nobody can be faster than nine minutes. A policy whose devices come back too early,
// together or too late exceeds the bounds. HUBLINE_FLEET=10000 takes a minute.
func TestAFleetRegistersAgainstAThrottledService(t *testing.T) {
	devices := fleetSize(t)
	for _, row := range []struct {
		name     string
		register registerFunc
		most     herd
	}{
		{"no Spread", registerWith(provisioning.Options{}), herd{13 * time.Minute, 2.9, 1, 0.06}},
		{"Spread of 10 minutes", registerWith(provisioning.Options{Spread: 10 * time.Minute}),
			herd{12 * time.Minute, 0.25, 0.02, 0.02}},
		{"own policy, no Spread", registerWith(provisioning.Options{Policy: retrypolicy.ExponentialBackoffWithJitter{
			C: time.Second, Cmin: time.Second, Cmax: time.Minute}}), herd{13 * time.Minute, 4.8, 1, 0.15}},
		{"rule of the official clients", registerByTheOfficialRule, herd{10 * time.Minute, 5, 1, 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				got := registerFleet(t, devices, row.register)
				n := float64(devices)
				t.Logf("| %s | %v | %.0f | %.0f | %.0f |", row.name, got.took.Round(time.Second), got.beyond*n, got.first*n,
					got.peak*n)
				require.GreaterOrEqual(t, got.took, (fleetMinutes-1)*time.Minute)
				require.LessOrEqual(t, got.took, row.most.took)
				require.LessOrEqual(t, got.beyond, row.most.beyond)
				require.LessOrEqual(t, got.first, row.most.first)
				require.LessOrEqual(t, got.peak, row.most.peak)
			})
		})
	}
}

func registerWith(o provisioning.Options) registerFunc {
	return func(ctx context.Context, id *provisioning.Identity, carrier provisioning.Carrier) error {
		c, err := provisioning.New(id, carrier, &o)
		if err == nil {
			_, err = c.Register(ctx)
		}
		return err
	}
}

// registerFleet registers all devices and returns what that took.
func registerFleet(t *testing.T, devices int, register registerFunc) herd {
	service, err := testbroker.NewDPS(&testbroker.DPSOptions{RegistrationsPerMinute: devices / fleetMinutes})
	require.NoError(t, err)
	defer func() { require.NoError(t, service.Close()) }()
	hub, err := testbroker.New(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, hub.Close()) }()
	require.NoError(t, service.Link(hub))
	group, err := service.Enroll(dpsdata.Enrollment{ID: "fleet", Group: true})
	require.NoError(t, err)
	carrier := dpsmqtt.New(&netopt.Options{Plaintext: true, Dial: service.Dial(testbroker.PortMQTT)})

	began := time.Now()
	errs := make([]error, devices)
	var fleet sync.WaitGroup
	for i := range errs {
		id := &provisioning.Identity{Endpoint: service.HostName(), IDScope: service.IDScope(),
			RegistrationID: fmt.Sprintf("meter-%d", i)}
		id.Sign, err = provisioning.GroupKey(group.PrimaryKey, id.RegistrationID)
		require.NoError(t, err)
		fleet.Go(func() { errs[i] = register(t.Context(), id, carrier) })
	}
	fleet.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}

	n := float64(devices)
	h := herd{took: time.Since(began), beyond: float64(len(service.Requests()))/n - 2}
	seconds := map[time.Duration]float64{}
	for _, r := range service.Requests() {
		second := r.Received.Sub(began).Truncate(time.Second)
		seconds[second]++
		if second < time.Minute {
			h.first = max(h.first, seconds[second]/n)
		} else {
			h.peak = max(h.peak, seconds[second]/n)
		}
	}
	return h
}

// registerByTheOfficialRule registers as the official clients for Node, Python and C do. They
// repeat what was answered with 429 or more after the delay that the service asks for, or 2 s,
// without a random part and without an end.
func registerByTheOfficialRule(ctx context.Context, id *provisioning.Identity, carrier provisioning.Carrier) error {
	login := &provisioning.Login{Endpoint: id.Endpoint, IDScope: id.IDScope, RegistrationID: id.RegistrationID,
		APIVersion: "2019-03-31", Timeout: 30 * time.Second, Now: time.Now}
	var err error
	login.Token, err = transport.SignToken(ctx, id.Sign, login.Resource(), "registration", time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	session, err := carrier.Open(ctx, login)
	if err != nil {
		return err
	}
	defer session.Close()
	request := &provisioning.Request{Body: []byte(`{"registrationId":"` + id.RegistrationID + `"}`)}
	for {
		answer, err := session.Exchange(ctx, request)
		switch {
		case err != nil:
			return err
		case answer.Status == 200:
			return nil
		case answer.Status == 202:
			var body struct{ OperationID string }
			if err := json.Unmarshal(answer.Body, &body); err != nil {
				return err
			}
			request = &provisioning.Request{Operation: body.OperationID}
		}
		time.Sleep(cmp.Or(answer.RetryAfter, 2*time.Second))
	}
}
