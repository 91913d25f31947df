package provisioning_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// The service's specification and its management write the profile in different letter cases. What
// no version of the module knows may be a hub that takes nothing of what it says.
func TestTheConnectionProfileSaysWhatKindOfHubItIs(t *testing.T) {
	const anything = "any"
	for member, row := range map[string]struct {
		raw    string // of the assignment; anything: there is none
		mqttv5 bool
	}{
		``:                                {"", false},
		`,"connectionProfile":null`:       {"", false},
		`,"connectionProfile":"classic"`:  {"classic", false},
		`,"connectionProfile":"Classic"`:  {"Classic", false},
		`,"connectionProfile":"mqttV5"`:   {"mqttV5", true},
		`,"connectionProfile":"MqttV5"`:   {"MqttV5", true},
		`,"connectionProfile":"MQTTV5"`:   {"MQTTV5", true},
		`,"connectionProfile":"mqttV6"`:   {anything, false},
		`,"connectionProfile":" classic"`: {anything, false},
		`,"connectionProfile":""`:         {anything, false},
		`,"connectionProfile":5`:          {anything, false},
		`,"connectionProfile":["mqttV5"]`: {anything, false},
	} {
		t.Run(member, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				for _, able := range []bool{true, false} {
					s := newScript(say{status: 200, body: `{"status":"assigned","registrationState":{"assignedHub":` +
						`"h.device.azure-devices.net","deviceId":"d"` + member + `}}`})
					a, err := register(t, s, &provisioning.Options{MQTTv5: able})
					if row.raw == anything || row.mqttv5 && !able {
						require.ErrorIs(t, err, transport.Unsupported)
						require.ErrorContains(t, err, "the hub has the connection profile ")
						continue
					}
					require.NoError(t, err)
					require.Equal(t, row.raw, a.ConnectionProfile)
					require.Equal(t, row.mqttv5, a.MQTTv5(), "the host name says nothing")
				}
			})
		})
	}
}

// A hub of either kind is assigned after any number of polls, also when connections are lost in the
// middle of the registration.
func TestEachKindOfHubIsAssignedAfterPolls(t *testing.T) {
	const cut = fault.DropAfterProvisioning
	faults := []fault.Fault{{}, {Kind: cut, Route: fault.RouteRegister}, {Kind: cut, Route: fault.RouteOperation}}
	for _, polls := range []int{-1, 1, 4} {
		onEachCarrier(t, &testbroker.DPSOptions{Polls: polls}, func(t *testing.T, s *service) {
			h, err := testbroker.New(&testbroker.Options{HostName: "hub2.example.test", MQTTv5: &testbroker.MQTTv5Options{}})
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Close()) }()
			require.NoError(t, s.Link(h))
			cert := testbroker.NewClientCert("both", time.Time{}, time.Time{})
			_, err = s.Enroll(dpsdata.Enrollment{ID: "both", Certificates: []*x509.Certificate{cert.Leaf}})
			require.NoError(t, err)
			s.network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
			for _, hub := range []*testbroker.Hub{s.hub, h, s.hub} {
				require.NoError(t, s.Move("both", hub.HostName()))
				for _, f := range faults {
					var in *testbroker.Injected
					if f.Kind != 0 {
						in = s.Inject(f)
					}
					steps := map[provisioning.Step]int{}
					a, err := s.client(t, s.identity(t, "both", ""), &provisioning.Options{MQTTv5: true,
						OnEvent: func(e provisioning.Event) { steps[e.Step]++ }}).Register(t.Context())
					require.NoError(t, err)
					require.Equal(t, hub.HostName(), a.Hub)
					require.Equal(t, hub.ConnectionProfile(), a.ConnectionProfile)
					if in == nil {
						require.Equal(t, max(polls, 0), steps[provisioning.StepPolling])
						require.Zero(t, steps[provisioning.StepRetrying])
						continue
					}
					in.Remove()
					require.Equal(t, polls > 0 || f.Route == fault.RouteRegister, in.Fired() == 1)
				}
			}
		})
	}
}

func TestAnUnknownConnectionProfileStaysReadable(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: `{"status":"assigned","registrationState":{"assignedHub":"h","deviceId":"d",` +
			`"connectionProfile":"quicV1"}}`})
		_, err := register(t, s, &provisioning.Options{MQTTv5: true})
		require.EqualError(t, err, `register: unsupported: provisioning service answered 200: the hub has the connection `+
			`profile "quicV1"; a newer version of the module may know it`)
	})
}

// Only one version of the API tells the profile, so it is the default of programs that heed it.
func TestAProgramForBothKindsOfHubAsksForTheVersionThatTellsTheProfile(t *testing.T) {
	for want, o := range map[string]provisioning.Options{
		"2019-03-31":         {},
		"2026-11-01":         {CSR: []byte{1}},
		"2026-11-02-preview": {CSR: []byte{1}, MQTTv5: true},
		"2027-01-01":         {MQTTv5: true, APIVersion: "2027-01-01"},
	} {
		testkit.In2030(t, func(t *testing.T) {
			s := newScript(say{status: 200, body: assigned})
			_, err := register(t, s, &o)
			require.NoError(t, err)
			require.Equal(t, want, s.logins[0].APIVersion)
		})
	}
}

// A hub of the new kind takes certificates only, so no token is made for it.
func TestAKeyIsNoLoginAtAHubOfTheNewKind(t *testing.T) {
	c, err := provisioning.New(identity(t), newScript(), nil)
	require.NoError(t, err)
	a := &provisioning.Assignment{Hub: "h", DeviceID: "d", ConnectionProfile: "mqttV5"}
	require.Nil(t, c.Credentials(a).Sign)
	a.ConnectionProfile = "classic"
	require.NotNil(t, c.Credentials(a).Sign)
}
