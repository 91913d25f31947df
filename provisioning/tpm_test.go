package provisioning_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// area returns a TPM2B_PUBLIC of a key that is not one.
func area(text string) []byte { return append([]byte{0, byte(len(text))}, text...) }

// fakeTPM is a provisioning.TPM whose keys are not encrypted.
type fakeTPM struct {
	endorsement []byte
	activated   []string
	fails       error // the next call fails
	panics      bool  // instead of failing
}

func newFakeTPM() *fakeTPM { return &fakeTPM{endorsement: area("ek")} }

func (f *fakeTPM) failure() error {
	err := f.fails
	f.fails = nil
	if err != nil && f.panics {
		panic(err)
	}
	return err
}

func (f *fakeTPM) PublicKeys(context.Context) (endorsement, storageRoot []byte, err error) {
	return f.endorsement, area("srk"), f.failure()
}

func (f *fakeTPM) Activate(_ context.Context, key []byte) error {
	if err := f.failure(); err != nil {
		return err
	}
	f.activated = append(f.activated, string(key))
	return nil
}

func (f *fakeTPM) Sign(_ context.Context, text []byte) ([]byte, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, []byte(f.activated[len(f.activated)-1]))
	mac.Write(text)
	return mac.Sum(nil), nil
}

// tpmScript is a script whose sessions are challenged when they open.
type tpmScript struct {
	*script
	challenges []string // the next ones; "": none comes
	proofs     []string
	got        provisioning.TPMLogin
	onOpen     func() // called once by the next OpenTPM, before its challenge
	onExchange func() // called once by the next Exchange
}

func (s *tpmScript) once(f *func()) {
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

func (s *tpmScript) OpenTPM(ctx context.Context, l *provisioning.Login, t *provisioning.TPMLogin) (
	provisioning.Session, error) {
	session, err := s.Open(ctx, l)
	if err != nil {
		return nil, err
	}
	s.got = *t
	s.once(&s.onOpen)
	token, err := t.Prove(ctx, []byte(s.challenges[0]))
	s.challenges = s.challenges[1:]
	if err != nil {
		session.Close()
		return nil, err
	}
	s.proofs = append(s.proofs, token.Text.Reveal())
	return tpmSession{session, s}, nil
}

type tpmSession struct {
	provisioning.Session
	s *tpmScript
}

func (s tpmSession) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	s.s.once(&s.s.onExchange)
	return s.Session.Exchange(ctx, r)
}

func tpmClient(t *testing.T, tpm provisioning.TPM, c provisioning.Carrier) *provisioning.Client {
	t.Helper()
	id := identity(t)
	id.Sign, id.TPM = nil, tpm
	client, err := provisioning.New(id, c, nil)
	require.NoError(t, err)
	return client
}

// assignedTPM has the key "hubkey".
const assignedTPM = `{"operationId":"op-1","status":"assigned","registrationState":{` +
	`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned","tpm":{"authenticationKey":"aHVia2V5"}}}`

// The key of the challenge signs at the service, and that of the assignment at the hub.
func TestATPMProvesTheIdentity(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		tpm := newFakeTPM()
		s := &tpmScript{script: newScript(say{status: 202, body: assigning}, say{status: 200, body: assignedTPM}),
			challenges: []string{"key-1"}}
		c := tpmClient(t, tpm, s)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"key-1", "hubkey"}, tpm.activated)
		require.Equal(t, area("ek"), s.got.EndorsementKey)
		require.Equal(t, area("srk"), s.got.StorageRootKey)
		require.Equal(t, []string{""}, s.tokens, "the login has no token")
		require.Len(t, s.proofs, 1)
		require.Contains(t, s.proofs[0], "sr=0ne00ABCDEF%2Fregistrations%2Freg-0001&sig=")
		require.Contains(t, s.proofs[0], "&skn=registration")

		mac, err := c.Credentials(a).Sign(t.Context(), []byte("text"))
		require.NoError(t, err)
		want := hmac.New(sha256.New, []byte("hubkey"))
		want.Write([]byte("text"))
		require.Equal(t, want.Sum(nil), mac)
		require.NotNil(t, c.Login().Sign)
	})
}

// An assignment without a key keeps the one of the challenge.
func TestAnAssignmentWithoutAKeyKeepsTheKeyOfTheChallenge(t *testing.T) {
	tpm := newFakeTPM()
	s := &tpmScript{script: newScript(say{status: 200, body: assigned}), challenges: []string{"key-1"}}
	_, err := tpmClient(t, tpm, s).Register(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"key-1"}, tpm.activated)
}

func TestWrongUsesOfATPMAreRefusedBeforeAnythingIsSent(t *testing.T) {
	id := identity(t)
	id.TPM = newFakeTPM()
	_, err := provisioning.New(id, &tpmScript{script: newScript()}, nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "Sign and TPM")
	id.Sign = nil
	_, err = provisioning.New(id, newScript(), nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "TPM is set")
	require.ErrorContains(t, err, "dpshttp")

	for name, wrong := range map[string][]byte{
		"none": nil, "without size": []byte("endorsement"), "long": append([]byte{4, 0}, make([]byte, 1024)...),
	} {
		tpm := newFakeTPM()
		tpm.endorsement = wrong
		s := &tpmScript{script: newScript()}
		_, err = tpmClient(t, tpm, s).Register(t.Context())
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, "endorsement key", name)
		require.Empty(t, s.logins, name)
	}
}

// What fails in the TPM is final, unless it says that it may be retried.
func TestFailuresOfATPM(t *testing.T) {
	plain := errors.New("lockout")
	busy := &transport.Error{Kind: transport.Unavailable, Err: errors.New("busy")}
	for _, panics := range []bool{false, true} {
		testkit.In2030(t, func(t *testing.T) {
			for name, fail := range map[string]func(f *fakeTPM, s *tpmScript, err error){
				"public keys": func(f *fakeTPM, _ *tpmScript, err error) { f.fails = err },
				"activation of the challenge": func(f *fakeTPM, s *tpmScript, err error) {
					s.onOpen = func() { f.fails = err }
				},
				"activation of the assignment": func(f *fakeTPM, s *tpmScript, err error) {
					s.onExchange = func() { f.fails = err }
				},
			} {
				tpm := newFakeTPM()
				tpm.panics = panics
				s := &tpmScript{script: newScript(slices.Repeat([]say{{status: 200, body: assignedTPM}}, 3)...),
					challenges: []string{"key-1", "key-2", "key-3"}}
				fail(tpm, s, plain)
				_, err := tpmClient(t, tpm, s).Register(t.Context())
				require.ErrorIs(t, err, transport.Unauthorized, name)
				require.ErrorIs(t, err, plain, name)
				require.ErrorContains(t, err, "the TPM has not", name)
				require.Zero(t, s.open, name)
				if panics {
					continue
				}
				fail(tpm, s, busy)
				_, err = tpmClient(t, tpm, s).Register(t.Context())
				require.NoError(t, err, name)
			}
		})
	}
}

// Only a register gets a challenge: a device whose poll is refused registers again, once.
func TestARefusedPollOfATPMIsFollowedByARegister(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		refusal := say{status: 401, body: `{"errorCode":401002}`}
		s := &tpmScript{script: newScript(say{status: 202, body: assigning}, refusal, say{status: 200, body: assignedTPM}),
			challenges: []string{"key-1", "key-2"}}
		_, err := tpmClient(t, newFakeTPM(), s).Register(t.Context())
		require.NoError(t, err)
		requireRequests(t, s.script, "register", "poll op-1", "register")

		s = &tpmScript{script: newScript(say{status: 202, body: assigning}, refusal, refusal),
			challenges: []string{"key-1", "key-2"}}
		_, err = tpmClient(t, newFakeTPM(), s).Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
	})
}

func TestEachSessionOfATPMGetsAToken(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &tpmScript{script: newScript(say{status: 202, after: time.Minute, body: assigning},
			say{status: 200, body: assignedTPM}), challenges: []string{"key-1", ""}}
		tpm := newFakeTPM()
		_, err := tpmClient(t, tpm, s).Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"key-1", "hubkey"}, tpm.activated)
		require.Len(t, s.proofs, 2)
		require.NotEqual(t, s.proofs[0], s.proofs[1])
	})
}

func TestRegistrationIDOfATPM(t *testing.T) {
	// base32(sha256("abc")), of another implementation
	require.Equal(t, "xj4bnp4pahh6uqkbidpf3lrceoyagyndsylxvhfucd7wd4qacwwq", provisioning.TPMRegistrationID([]byte("abc")))
	id := provisioning.TPMRegistrationID(bytes.Repeat([]byte{7}, 316))
	require.Len(t, id, 52)
}
