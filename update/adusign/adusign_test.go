package adusign

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// production is a signature by the service's own keys, from the tests of Azure Device Update.
//
//go:embed testdata/production.jws
var production string

// The signatures of the published vector are valid, and its manifest was edited.
func TestTheServicesOwnSignature(t *testing.T) {
	text := strings.TrimSpace(production)
	err := Production().Verify([]byte("{}"), text)
	require.ErrorContains(t, err, "another manifest", "both signatures are valid")
	require.Equal(t, transport.Untrusted, transport.KindOf(err))

	outer, err := parse("signature", text)
	require.NoError(t, err)
	require.JSONEq(t, `{"sha256":"bRY+r+437la5ywhHx7jTxeUTdx7Iut2BCeqZhC+9naM="}`, string(outer.payload))

	other := Production()
	delete(other, "ADU.200702.R")
	require.ErrorContains(t, other.Verify([]byte("{}"), text), "kid", "a disabled root key")
	other["ADU.200702.R"] = other["ADU.200703.R"]
	require.ErrorContains(t, other.Verify([]byte("{}"), text), "was not signed")
}

func TestTheRootKeysAreThePublishedOnes(t *testing.T) {
	roots := Production()
	require.Len(t, roots, 2)
	for id, want := range map[string]string{
		"ADU.200702.R": "6242c8e6385f174d8ab5c896d99deb334e0700c8d7ba84dcf655668d60e8de66",
		"ADU.200703.R": "6c7546350919e4e605bc94f9ab297af60ed5cfc1e291a2ac7b8dd3d6f276c09c",
	} {
		sum := sha256.Sum256(roots[id].N.Bytes())
		require.Equal(t, want, hex.EncodeToString(sum[:]), id)
		require.Equal(t, 3072, roots[id].N.BitLen())
	}
}

// signer makes signatures with keys of its own.
type signer struct {
	t         testing.TB
	root, key *rsa.PrivateKey
}

func newSigner(t testing.TB) *signer {
	return &signer{t: t, root: testKeys()[0], key: testKeys()[1]}
}

// testKeys are made once, because that takes a second.
var testKeys = sync.OnceValue(func() (keys [4]*rsa.PrivateKey) {
	for i := range keys {
		var err error
		if keys[i], err = rsa.GenerateKey(rand.Reader, leastBits); err != nil {
			panic(err)
		}
	}
	return keys
})

func (s *signer) roots() Roots { return Roots{"root": &s.root.PublicKey} }

func (s *signer) token(key *rsa.PrivateKey, header, payload string) string {
	signed := encoding.EncodeToString([]byte(header)) + "." + encoding.EncodeToString([]byte(payload))
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	require.NoError(s.t, err)
	return signed + "." + encoding.EncodeToString(signature)
}

func (s *signer) jwk() string {
	modulus := encoding.EncodeToString(s.key.N.Bytes())
	return fmt.Sprintf(`{"kty":"RSA","n":%q,"e":"AQAB","alg":"RS256","kid":"key"}`, modulus)
}

func (s *signer) sjwk() string { return s.token(s.root, `{"alg":"RS256","kid":"root"}`, s.jwk()) }

func (s *signer) payload(manifest string) string {
	sum := sha256.Sum256([]byte(manifest))
	return fmt.Sprintf(`{"sha256":%q}`, base64.StdEncoding.EncodeToString(sum[:]))
}

func (s *signer) sign(manifest string) string {
	return s.token(s.key, fmt.Sprintf(`{"alg":"RS256","sjwk":%q}`, s.sjwk()), s.payload(manifest))
}

const manifest = `{"updateId":{"provider":"contoso"},"files":{"f1":{"hashes":{"sha256":"a\/b"}}}}`

func TestVerify(t *testing.T) {
	s := newSigner(t)
	good := s.sign(manifest)
	require.NoError(t, s.roots().Verify([]byte(manifest), good))
	for i := range manifest {
		changed := []byte(manifest)
		changed[i] ^= 1
		require.ErrorContains(t, s.roots().Verify(changed, good), "another manifest", "byte %d", i)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	weak := &signer{t: t, root: s.root, key: small}

	header := func(format string, args ...any) string {
		return s.token(s.key, fmt.Sprintf(format, args...), s.payload(manifest))
	}
	inner := func(key *rsa.PrivateKey, head, payload string) string {
		return header(`{"alg":"RS256","sjwk":%q}`, s.token(key, head, payload))
	}
	const head = `{"alg":"RS256","kid":"root"}`
	outer := fmt.Sprintf(`{"alg":"RS256","sjwk":%q}`, s.sjwk())
	for name, row := range map[string]struct{ signature, want string }{
		"empty":                  {"", "has 1 parts"},
		"four parts":             {good + ".", "has 4 parts"},
		"long":                   {strings.Repeat("A", maxSignature+1), "more than"},
		"padding":                {strings.Replace(good, ".", "=.", 1), "part 1"},
		"header":                 {header(`[]`), "no JSON object"},
		"none":                   {header(`{"alg":"none","sjwk":%q}`, s.sjwk()), "alg"},
		"HMAC":                   {header(`{"alg":"HS256","sjwk":%q}`, s.sjwk()), "alg"},
		"algorithm in lower":     {header(`{"alg":"rs256","sjwk":%q}`, s.sjwk()), "alg"},
		"no algorithm":           {header(`{"sjwk":%q}`, s.sjwk()), "alg"},
		"an extension":           {header(`{"alg":"RS256","crit":["exp"],"sjwk":%q}`, s.sjwk()), "crit"},
		"no key":                 {header(`{"alg":"RS256"}`), "sjwk"},
		"its own key":            {inner(s.key, head, s.jwk()), "was not signed"},
		"an unknown root":        {inner(s.root, `{"alg":"RS256","kid":"root.T"}`, s.jwk()), "kid"},
		"no root":                {inner(s.root, `{"alg":"RS256"}`, s.jwk()), "kid"},
		"another algorithm":      {inner(s.root, `{"alg":"PS256","kid":"root"}`, s.jwk()), "alg"},
		"a key for PS256":        {inner(s.root, head, strings.Replace(s.jwk(), "RS256", "PS256", 1)), "no JSON Web Key"},
		"a key of another type":  {inner(s.root, head, strings.Replace(s.jwk(), "RSA", "EC", 1)), "no JSON Web Key"},
		"an exponent of 3":       {inner(s.root, head, strings.Replace(s.jwk(), "AQAB", "Aw", 1)), "exponent"},
		"a long exponent":        {inner(s.root, head, strings.Replace(s.jwk(), "AQAB", "AQAAAAAAAQAB", 1)), "exponent"},
		"no modulus":             {inner(s.root, head, `{"kty":"RSA","alg":"RS256","e":"AQAB"}`), "0 bits"},
		"a short key":            {weak.sign(manifest), "1024 bits"},
		"signed by the root":     {s.token(s.root, outer, s.payload(manifest)), "was not signed"},
		"a payload without hash": {s.token(s.key, outer, `{}`), "another manifest"},
		"a payload of a list":    {s.token(s.key, outer, `[]`), "no JSON object"},
		"a hash in hexadecimal":  {s.token(s.key, outer, `{"sha256":"x-"}`), "not Base64"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.roots().Verify([]byte(manifest), row.signature)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, transport.Untrusted, transport.KindOf(err))
		})
	}
	require.Error(t, Roots(nil).Verify([]byte(manifest), good))
	require.Error(t, Roots{"root": nil}.Verify([]byte(manifest), good))
}

// Nothing but the signed manifest is accepted, whatever the text.
func FuzzVerify(f *testing.F) {
	s := newSigner(f)
	good := s.sign(manifest)
	f.Add([]byte(manifest), good)
	f.Add([]byte(manifest), strings.TrimSpace(production))
	f.Add([]byte("{}"), good[:len(good)-4])
	roots := Production()
	roots["root"] = &s.root.PublicKey
	f.Fuzz(func(t *testing.T, text []byte, signature string) {
		if roots.Verify(text, signature) == nil && !bytes.Equal(text, []byte(manifest)) {
			t.Errorf("accepted %q with %q", text, signature)
		}
	})
}

func ExampleRoots_Verify() {
	err := Production().Verify([]byte(`{"manifestVersion":"4"}`), "e30.e30.e30")
	fmt.Println(err)
	// Output: update certificate not trusted: the algorithm (alg) of the signature is not RS256
}
