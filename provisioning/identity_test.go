package provisioning_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

func TestDerivedKeys(t *testing.T) {
	for _, v := range []struct{ group, id, want string }{
		{groupKey, "reg-0001", ownKey},
		{groupKey, "Reg-0001", "qHzNPEgMdhD8Xx2ZfimOhdY6ElEo5KbdyCwqvzRps5Y="},
		{"8isrFI1sGsIlvvFSSFRiMfCNzv21fjbE/+ah/lSh3lF8e2YG1Te7w1KpZhJFFXJrqYKi9yegxkqIChbqOS9Egw==", // Microsoft Learn
			"sn-007-888-abc-mac-a1-b2-c3-d4-e5-f6", "Jsm0lyGpjaVYVP2g3FnmnmG9dI/9qU24wNoykUmermc="},
	} {
		key, err := provisioning.DeriveKey(v.group, v.id)
		require.NoError(t, err)
		require.Equal(t, v.want, key)
		derived, err := provisioning.GroupKey(v.group, v.id)
		require.NoError(t, err)
		own, err := transport.SharedKey(v.want)
		require.NoError(t, err)
		mac, err := derived(t.Context(), []byte("text"))
		require.NoError(t, err)
		want, err := own(t.Context(), []byte("text"))
		require.NoError(t, err)
		require.Equal(t, want, mac)
	}
}

func TestAWrongGroupKeyIsNotShown(t *testing.T) {
	const wrong = "c2VjcmV0c2VjcmV0!"
	_, err := provisioning.GroupKey(wrong, "reg-0001")
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "group key")
	require.NotContains(t, err.Error(), wrong)
	_, err = provisioning.GroupKey(groupKey, "")
	require.ErrorContains(t, err, "RegistrationID")
}

// The token is the one that the service expects, byte for byte.
func TestToken(t *testing.T) {
	id := identity(t)
	id.Now = func() time.Time { return time.Unix(1893456000-3600, 500) }
	s := newScript(say{status: 200, body: assigned})
	c, err := provisioning.New(id, s, nil)
	require.NoError(t, err)
	_, err = c.Register(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"SharedAccessSignature sr=0ne00ABCDEF%2Fregistrations%2Freg-0001&sig=" +
		"iNe1u%2F31DHj1zYAxHismcM%2BX2dB%2FXN6re6TXlJP%2FglI%3D&se=1893456000&skn=registration"}, s.tokens)
}

func TestWrongIdentitiesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	for name, row := range map[string]struct {
		change func(id *provisioning.Identity)
		field  string
	}{
		"endpoint with a scheme": {func(id *provisioning.Identity) { id.Endpoint = "https://dps.example.test" }, "Endpoint"},
		"endpoint with a port":   {func(id *provisioning.Identity) { id.Endpoint = "dps.example.test:443" }, "Endpoint"},
		"no scope":               {func(id *provisioning.Identity) { id.IDScope = "" }, "IDScope"},
		"scope with a slash":     {func(id *provisioning.Identity) { id.IDScope = "0ne/x" }, "IDScope"},
		"long scope":             {func(id *provisioning.Identity) { id.IDScope = strings.Repeat("0", 129) }, "IDScope"},
		"no registration id":     {func(id *provisioning.Identity) { id.RegistrationID = "" }, "RegistrationID"},
		"id ends in a dot":       {func(id *provisioning.Identity) { id.RegistrationID = "reg." }, "RegistrationID"},
		"id ends in a colon":     {func(id *provisioning.Identity) { id.RegistrationID = "reg:" }, "RegistrationID"},
		"id with a space":        {func(id *provisioning.Identity) { id.RegistrationID = "reg 1" }, "RegistrationID"},
		"id with a slash":        {func(id *provisioning.Identity) { id.RegistrationID = "reg/1" }, "RegistrationID"},
		"id with a line end":     {func(id *provisioning.Identity) { id.RegistrationID = "reg\n1" }, `"reg\n1"`},
		"long id": {func(id *provisioning.Identity) {
			id.RegistrationID = strings.Repeat("r", 129)
		}, "RegistrationID"},
		"second key alone": {func(id *provisioning.Identity) { id.SecondSign, id.Sign = id.Sign, nil }, "SecondSign"},
		"short token":      {func(id *provisioning.Identity) { id.TokenLife = time.Second }, "TokenLife"},
		"negative token":   {func(id *provisioning.Identity) { id.TokenLife = -time.Hour }, "TokenLife"},
	} {
		t.Run(name, func(t *testing.T) {
			id := identity(t)
			row.change(id)
			_, err := provisioning.New(id, newScript(), nil)
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, row.field)
		})
	}
	id := identity(t)
	id.RegistrationID = strings.Repeat("a", 120) + "-._:Z9-"
	_, err := provisioning.New(id, newScript(), nil)
	require.NoError(t, err)
	_, err = provisioning.New(nil, newScript(), nil)
	require.ErrorIs(t, err, transport.Invalid)
	_, err = provisioning.New(id, nil, nil)
	require.ErrorIs(t, err, transport.Invalid)
}

func TestWrongOptionsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	for field, o := range map[string]*provisioning.Options{
		"PollInterval":   {PollInterval: -1},
		"RequestTimeout": {RequestTimeout: -1},
		"Spread":         {Spread: -1},
		"APIVersion":     {APIVersion: "2026-11-01&x=y"},
		"Payload":        {Payload: []byte(`{"a":`)},
		"CSR":            {CSR: []byte("-----BEGIN CERTIFICATE REQUEST-----")},
	} {
		_, err := provisioning.New(identity(t), newScript(), o)
		require.ErrorIs(t, err, transport.Invalid, field)
		require.ErrorContains(t, err, field)
	}
	for field, o := range map[string]*provisioning.Options{
		"Payload": {Payload: []byte(`"` + strings.Repeat("x", 96<<10) + `"`)},
		"CSR":     {CSR: make([]byte, 8<<10)},
	} {
		_, err := provisioning.New(identity(t), newScript(), o)
		require.ErrorIs(t, err, transport.TooLarge, field)
		require.ErrorContains(t, err, field)
	}
	_, err := provisioning.New(identity(t), newScript(), &provisioning.Options{APIVersion: strings.Repeat("9", 32)})
	require.NoError(t, err)
	_, err = provisioning.New(identity(t), newScript(), &provisioning.Options{APIVersion: strings.Repeat("9", 33)})
	require.ErrorIs(t, err, transport.Invalid)
}

// A device waits until its clock is set. Nothing is sent before.
func TestAnUnsetClockIsAwaited(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		set := time.Now().Add(25 * time.Second)
		id.Now = func() time.Time {
			if time.Now().Before(set) {
				return time.Unix(1000, 0)
			}
			return time.Now()
		}
		s := newScript(say{status: 200, body: assigned})
		var events []provisioning.Event
		c, err := provisioning.New(id,
			s, &provisioning.Options{OnEvent: func(e provisioning.Event) { events = append(events, e) }})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.at[0], 25*time.Second)
		require.ErrorIs(t, events[1].Err, transport.ClockUnset)
		require.GreaterOrEqual(t, events[1].Delay, 10*time.Second)
	})
}

// A clock that lost its battery shows 2000 or the build time of the image, and signs tokens that
// the service refuses.
func TestATokenOfAWrongClockThatIsRefusedIsNotTheKeysFault(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.SecondSign = id.Sign
		id.Now = func() time.Time { return time.Now().AddDate(-20, 0, 0) }
		refusal := say{status: 401, body: `{"errorCode":401002}`}
		s := newScript(refusal, refusal, refusal, say{status: 200, body: assigned})
		c, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		require.Less(t, s.at[1], time.Second, "the other key, at once")
		require.GreaterOrEqual(t, s.at[2]-s.at[1], 10*time.Second)
	})
}
