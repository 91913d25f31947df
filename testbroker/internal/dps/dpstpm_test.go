package dps_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// newTPM makes a TPM in software, and a body with its keys.
func newTPM(t testing.TB) (tpm *testkit.TPM, body string) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	return tpm, tpmBody(t, tpm, nil)
}

// tpmBody returns the body of a register, with another storage root key unless srk is nil.
func tpmBody(t testing.TB, tpm *testkit.TPM, srk []byte) string {
	endorsement, storageRoot, err := tpm.PublicKeys(t.Context())
	require.NoError(t, err)
	if srk != nil {
		storageRoot = srk
	}
	body, err := json.Marshal(map[string]any{"registrationId": "reg-1", "tpm": map[string]any{
		"endorsementKey": endorsement, "storageRootKey": storageRoot}})
	require.NoError(t, err)
	return string(body)
}

// tpmToken returns a token signed by the TPM.
func tpmToken(t testing.TB, tpm *testkit.TPM, id string) string {
	resource := url.QueryEscape(testScope + "/registrations/" + id)
	end := time.Now().Add(time.Hour).Unix()
	text := resource + "\n" + jsonText(t, end)
	mac, err := tpm.Sign(t.Context(), []byte(text))
	require.NoError(t, err)
	return "SharedAccessSignature sr=" + resource + "&sig=" +
		url.QueryEscape(base64.StdEncoding.EncodeToString(mac)) + "&se=" + jsonText(t, end) + "&skn=registration"
}

func jsonText(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// tpmAnswer is the challenge over HTTPS, or the part of an answer that is about the TPM.
type tpmAnswer struct {
	Message, KeyName  string
	AuthenticationKey []byte
	ErrorCode         int
	RegistrationState struct {
		TPM *struct{ AuthenticationKey []byte }
	}
}

func tpmAnswerOf(t testing.TB, a dpsAnswer) (got tpmAnswer) {
	require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
	return got
}

func TestRegistrationWithATPM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test")
		tpm, body := newTPM(t)
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", EndorsementKey: tpm.EndorsementKey()})
		p := overDPS(t, d)

		challenged := register(p, "reg-1", body)
		require.Equal(t, 401, challenged.status)
		challenge := tpmAnswerOf(t, challenged)
		require.Equal(t, "registration", challenge.KeyName)
		require.Zero(t, challenge.ErrorCode)
		require.NoError(t, tpm.Activate(t.Context(), challenge.AuthenticationKey))
		require.Empty(t, d.Registrations(), "nothing is registered before the proof")

		p.Token = tpmToken(t, tpm, "reg-1")
		overMQTT := dpsConnect(d, "reg-1", e.PrimaryKey)
		overMQTT.Password = p.Token
		require.Equal(t, []byte{0, 5}, dialDPS(t, d).Connect(overMQTT), "a TPM registers over HTTPS or AMQP")
		a := assigned(p, "reg-1", body)
		require.Equal(t, "hub-a.example.test", a.State.AssignedHub)
		require.Nil(t, a.State.SymmetricKey)
		result := tpmAnswerOf(t, a)
		require.NotEqual(t, challenge.AuthenticationKey, result.RegistrationState.TPM.AuthenticationKey)
		require.NoError(t, tpm.Activate(t.Context(), result.RegistrationState.TPM.AuthenticationKey))

		// the key is that of the device at its hub
		devices := hubs["hub-a.example.test"].Devices()
		require.Len(t, devices, 1)
		require.Equal(t, e.PrimaryKey, devices[0].PrimaryKey)
		log := d.Requests()
		require.Equal(t, 401, log[0].Status)
		require.Zero(t, log[0].ErrorCode)
		require.Equal(t, 202, log[1].Status)
	})
}

func TestRefusedTPMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		tpm, body := newTPM(t)
		_, foreign := newTPM(t)
		enroll(t, d, dpsdata.Enrollment{ID: "reg-1", EndorsementKey: tpm.EndorsementKey()})
		keyed := enroll(t, d, dpsdata.Enrollment{ID: "reg-2"})
		p := overDPS(t, d)
		refused := func(code int, id, body string) {
			t.Helper()
			a := register(p, id, strings.ReplaceAll(body, "reg-1", id))
			require.Equal(t, code, a.ErrorCode, a.body)
			require.Nil(t, tpmAnswerOf(t, a).AuthenticationKey)
		}
		refused(401002, "reg-1", "")
		refused(401002, "reg-1", "{}")
		refused(401002, "reg-1", foreign)
		refused(400004, "reg-1", tpmBody(t, tpm, []byte("key")))
		refused(400004, "reg-1", tpmBody(t, tpm, tpm.EndorsementKey()[:300]))
		refused(400004, "reg-1", `{"tpm":{"endorsementKey":"?"}}`)
		refused(400004, "reg-1", strings.Replace(body, "reg-1", "reg-9", 1))
		refused(401002, "reg-2", body) // its enrollment has keys
		refused(404201, "reg-3", body) // not enrolled
		refused(401002, "reg-3", "{}")
		p.Token = dpsToken(d, "reg-1", keyed.PrimaryKey)
		refused(401002, "reg-1", body)
		require.Empty(t, d.Registrations())

		for name, e := range map[string]dpsdata.Enrollment{
			"group":     {ID: "grp", Group: true, EndorsementKey: tpm.EndorsementKey()},
			"no key":    {ID: "reg-4", EndorsementKey: []byte("endorsement")},
			"empty":     {ID: "reg-4", EndorsementKey: []byte{}},
			"cut":       {ID: "reg-4", EndorsementKey: tpm.EndorsementKey()[:315]},
			"too long":  {ID: "reg-4", EndorsementKey: append(tpm.EndorsementKey(), 0)},
			"attribute": {ID: "reg-4", EndorsementKey: changed(tpm.EndorsementKey(), 8)},
			"policy":    {ID: "reg-4", EndorsementKey: changed(tpm.EndorsementKey(), 20)},
			"algorithm": {ID: "reg-4", EndorsementKey: changed(tpm.EndorsementKey(), 3)},
			"cipher":    {ID: "reg-4", EndorsementKey: changed(tpm.EndorsementKey(), 45)},
		} {
			_, err := d.Enroll(e)
			require.Error(t, err, name)
		}
	})
}

func changed(b []byte, at int) []byte {
	b[at] ^= 4
	return b
}

func TestFaultsOfTPMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		tpm, body := newTPM(t)
		enroll(t, d, dpsdata.Enrollment{ID: "reg-1", EndorsementKey: tpm.EndorsementKey()})
		p := overDPS(t, d)
		key := func() []byte { return tpmAnswerOf(t, register(p, "reg-1", body)).AuthenticationKey }

		d.Inject(fault.Fault{Kind: fault.WrongChallenge})
		require.Error(t, tpm.Activate(t.Context(), key()))
		d.Inject(fault.Fault{Kind: fault.WrongChallenge, Bytes: []byte{1}})
		require.Equal(t, []byte{1}, key())
		d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 503})
		require.Equal(t, 503, register(p, "reg-1", body).status, "faults of requests happen to a challenge")
		require.NoError(t, tpm.Activate(t.Context(), key()))

		p.Token = tpmToken(t, tpm, "reg-1")
		d.Inject(fault.Fault{Kind: fault.RepeatChallenge})
		again := register(p, "reg-1", body)
		require.Equal(t, 401, again.status)
		require.NoError(t, tpm.Activate(t.Context(), tpmAnswerOf(t, again).AuthenticationKey))
		d.Inject(fault.Fault{Kind: fault.WrongAuthenticationKey})
		a := register(p, "reg-1", body)
		require.Equal(t, "assigned", a.Status)
		require.Error(t, tpm.Activate(t.Context(), tpmAnswerOf(t, a).RegistrationState.TPM.AuthenticationKey))
	})
}

func TestEnrollmentWithATPMOfABackEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		tpm, _ := newTPM(t)
		text := base64.StdEncoding.EncodeToString(tpm.EndorsementKey())
		p := dpsBackEnd(t, d)
		r, got := ask(p, 200, "PUT", "/enrollments/reg-1",
			`{"registrationId":"reg-1","attestation":{"type":"tpm","tpm":{"endorsementKey":"`+text+`"}}}`)
		require.Equal(t, map[string]any{"type": "tpm", "tpm": map[string]any{"endorsementKey": text}}, got["attestation"])
		e, err := d.Enrollment("reg-1")
		require.NoError(t, err)
		require.Equal(t, tpm.EndorsementKey(), e.EndorsementKey)
		require.NotContains(t, r.Text, e.PrimaryKey)
		ask(p, 400, "PUT", "/enrollments/reg-2",
			`{"registrationId":"reg-2","attestation":{"type":"tpm","tpm":{"endorsementKey":"AAAA"}}}`)
	})
}

// saslTPM runs the SASL dialogue as far as the outcome, and returns its code. token makes the token
// after the key was activated.
func saslTPM(t testing.TB, d *testbroker.DPS, tpm *testkit.TPM, id string, token func() string) (*hubtest.RawPeer,
	uint8) {
	conn, err := d.Dial(testbroker.PortAMQP)(t.Context(), "tcp", "dps:5672")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	p := &hubtest.RawPeer{T: t, Conn: conn}
	h := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
	p.Send(h[:])
	require.Equal(t, amqpwire.ProtocolSASL, p.Header())
	mechanisms, _ := hubtest.Want[*amqpwire.Mechanisms](p)
	require.Contains(t, mechanisms.Mechanisms, amqpwire.Symbol("TPM"))

	endorsement, storageRoot, err := tpm.PublicKeys(t.Context())
	require.NoError(t, err)
	first := append([]byte("\x00"+testScope+"\x00"+id+"\x00"), endorsement...)
	p.Say(0, &amqpwire.Init{Mechanism: "TPM", InitialResponse: first, Hostname: d.HostName()})
	challenge, _ := hubtest.Want[*amqpwire.Challenge](p)
	require.Equal(t, []byte{0}, challenge.Challenge)
	p.Say(0, &amqpwire.Response{Response: append([]byte{0}, storageRoot...)})
	f, err := p.Next()
	require.NoError(t, err)
	if o, ok := f.Body.(*amqpwire.Outcome); ok {
		return p, o.Code
	}
	half := f.Body.(*amqpwire.Challenge).Challenge
	require.EqualValues(t, 0x80, half[0])
	p.Say(0, &amqpwire.Response{Response: []byte{0}})
	rest, _ := hubtest.Want[*amqpwire.Challenge](p)
	require.EqualValues(t, 0xc1, rest.Challenge[0])
	require.Less(t, len(half), 480, "a frame of 512 bytes")
	require.Less(t, len(rest.Challenge), 480)
	if err := tpm.Activate(t.Context(), append(half[1:], rest.Challenge[1:]...)); err != nil {
		t.Log(err)
	}
	p.Say(0, &amqpwire.Response{Response: []byte("\x00" + token())})
	o, _ := hubtest.Want[*amqpwire.Outcome](p)
	return p, o.Code
}

func TestRegistrationWithATPMOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		tpm, _ := newTPM(t)
		enroll(t, d, dpsdata.Enrollment{ID: "reg-1", EndorsementKey: tpm.EndorsementKey()})
		p, code := saslTPM(t, d, tpm, "reg-1", func() string { return tpmToken(t, tpm, "reg-1") })
		require.Equal(t, amqpwire.SASLOK, code)
		require.Empty(t, p.In)
		conn, err := amqp.NewConn(t.Context(), p.Conn, &amqp.ConnOptions{HostName: d.HostName()})
		require.NoError(t, err)
		defer conn.Close()
		l, err := attachDPS(t, conn, testScope+"/registrations/reg-1")
		require.NoError(t, err)
		a := l.request(dpsRegisterMessage(""))
		require.Equal(t, "assigned", a.Status)
		require.NoError(t, tpm.Activate(t.Context(), tpmAnswerOf(t, a).RegistrationState.TPM.AuthenticationKey))
	})
}

func TestRefusedTPMsOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil, "hub-a.example.test")
		tpm, _ := newTPM(t)
		other, _ := newTPM(t)
		enroll(t, d, dpsdata.Enrollment{ID: "reg-1", EndorsementKey: tpm.EndorsementKey()})
		right := func() string { return tpmToken(t, tpm, "reg-1") }
		for name, c := range map[string]struct {
			tpm   *testkit.TPM
			id    string
			token func() string
			code  uint8
		}{
			"the right TPM":  {tpm, "reg-1", right, amqpwire.SASLOK},
			"another TPM":    {other, "reg-1", right, amqpwire.SASLAuth},
			"not enrolled":   {tpm, "reg-2", right, amqpwire.SASLAuth},
			"no id":          {tpm, "", right, amqpwire.SASLAuth},
			"no token":       {tpm, "reg-1", func() string { return "x" }, amqpwire.SASLAuth},
			"for another id": {tpm, "reg-1", func() string { return tpmToken(t, tpm, "reg-2") }, amqpwire.SASLAuth},
		} {
			_, code := saslTPM(t, d, c.tpm, c.id, c.token)
			require.Equal(t, c.code, code, name)
		}
		fresh, err := testkit.NewTPM()
		require.NoError(t, err)
		enroll(t, d, dpsdata.Enrollment{ID: "reg-3", EndorsementKey: fresh.EndorsementKey()})
		d.Inject(fault.Fault{Kind: fault.WrongChallenge, Route: fault.RouteRegister})
		_, code := saslTPM(t, d, fresh, "reg-3", func() string { return "" })
		require.Equal(t, amqpwire.SASLAuth, code)
		require.Zero(t, fresh.Activations())
	})
}

// A dialogue that is not one ends with the outcome, and takes a bounded number of steps.
func TestMalformedDialoguesOfTPMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, nil)
		for name, responses := range map[string][]string{
			"empty":           {""},
			"control byte":    {"\x80a\x00b\x00c"},
			"no key":          {"\x00a\x00b"},
			"empty key":       {"\x00a\x00b\x00"},
			"slash in the id": {"\x00" + testScope + "\x00a/b\x00key", "\x00srk"},
			"empty root":      {"\x00" + testScope + "\x00reg-1\x00key", ""},
		} {
			conn, err := d.Dial(testbroker.PortAMQP)(t.Context(), "tcp", "dps:5672")
			require.NoError(t, err)
			p := &hubtest.RawPeer{T: t, Conn: conn}
			h := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
			p.Send(h[:])
			p.Header()
			hubtest.Want[*amqpwire.Mechanisms](p)
			p.Say(0, &amqpwire.Init{Mechanism: "TPM", InitialResponse: []byte(responses[0])})
			for _, r := range responses[1:] {
				hubtest.Want[*amqpwire.Challenge](p)
				p.Say(0, &amqpwire.Response{Response: []byte(r)})
			}
			o, _ := hubtest.Want[*amqpwire.Outcome](p)
			require.Equal(t, amqpwire.SASLAuth, o.Code, name)
			conn.Close()
		}
	})
}
