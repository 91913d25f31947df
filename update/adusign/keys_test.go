package adusign

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// published is the package of root keys that the service has published, from the tests of Azure
// Device Update.
//
//go:embed testdata/rootkeys.json
var published []byte

func TestThePublishedPackageIsTrusted(t *testing.T) {
	keys, err := NewKeys(nil)
	require.NoError(t, err)
	require.NoError(t, keys.Update(published))
	require.Equal(t, int64(1), keys.now.version)
	require.ErrorContains(t, keys.Verify([]byte("{}"), strings.TrimSpace(production)), "another manifest",
		"both signatures are valid")
	damaged := strings.Replace(string(published), `"version": 1`, `"version": 2`, 1)
	require.ErrorContains(t, keys.Update([]byte(damaged)), "not by the trusted key")
}

// rotated is the service's second package, with a new root key, from the tests of its C SDK.
//
//go:embed testdata/rootkeys2.json
var rotated []byte

func TestThePublishedRotationIsFollowed(t *testing.T) {
	keys, err := NewKeys(nil)
	require.NoError(t, err)
	require.NoError(t, keys.Update(published))
	require.NotContains(t, keys.now.roots, "ADU.241112.R")
	require.NoError(t, keys.Update(rotated))
	require.Contains(t, keys.now.roots, "ADU.241112.R")
	require.Len(t, keys.now.roots, 3)
	require.ErrorContains(t, keys.Update(published), "older than version 2")

	second, err := NewKeys(&KeysOptions{Roots: keys.now.roots})
	require.NoError(t, err)
	require.NoError(t, second.Update(rotated), "the new key has signed it, too")
	require.ErrorContains(t, second.Update(published), "lacks 1 of the root keys")
}

func TestRootsOfAPackageAreThoseThatItLists(t *testing.T) {
	roots, err := RootsOf(published)
	require.NoError(t, err)
	require.Equal(t, Production(), roots)
	for _, text := range []string{"", "[]", `{"protected":{"rootKeys":{"a":{"keyType":"EC"}}}}`} {
		_, err := RootsOf([]byte(text))
		require.ErrorIs(t, err, transport.Untrusted, text)
	}
}

// The hash is that of the service's signing key in a package of the tests of Azure Device Update.
func TestSigningKeysAreNamedByTheHashOfTheirPKCS1Form(t *testing.T) {
	outer, err := parse("signature", strings.TrimSpace(production))
	require.NoError(t, err)
	key, err := Production().signingKey(outer.header.Key)
	require.NoError(t, err)
	hash := fingerprintOf(key)
	require.Equal(t, "q5xF2ARjhdtH-kaLNTwZAMoXdy0iJQjziQ_AyZWDPRA", encoding.EncodeToString(hash[:]))
}

// issuer makes packages of root keys.
type issuer struct {
	*signer
	second, added *rsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	return &issuer{signer: newSigner(t), second: testKeys()[2], added: testKeys()[3]}
}

func (i *issuer) held() Roots {
	return Roots{"root": &i.root.PublicKey, "second": &i.second.PublicKey}
}

// member returns a member of rootKeys.
func member(id string, key *rsa.PrivateKey) string {
	return fmt.Sprintf(`%q:{"keyType":"RSA","n":%q,"e":65537}`, id, encoding.EncodeToString(key.N.Bytes()))
}

// pack signs the protected part of a package by each key.
func (i *issuer) pack(protected string, by ...*rsa.PrivateKey) []byte {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(protected, "/", `\/`)))
	var signatures []string
	for _, key := range by {
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		require.NoError(i.t, err)
		signatures = append(signatures, fmt.Sprintf(`{"alg":"RS256","sig":%q}`, encoding.EncodeToString(sig)))
	}
	return fmt.Appendf(nil, `{"x":0, "protected": %s, "signatures":[%s]}`, protected, strings.Join(signatures, ","))
}

// protected returns the protected part of a package with both held keys and the added one.
func (i *issuer) protected(version int, members string) string {
	return fmt.Sprintf(`{"isTest":false,"version":%d,"published":1700000000,%s"note":"a/b","rootKeys":{%s,%s,%s}}`,
		version, members, member("root", i.root), member("added", i.added), member("second", i.second))
}

// packed is a valid package.
func (i *issuer) packed(version int, members string) []byte {
	return i.pack(i.protected(version, members), i.root, i.added, i.second)
}

// signedUnder returns a signature of manifest whose signing key the root key has signed.
func (i *issuer) signedUnder(id string, root *rsa.PrivateKey) string {
	sjwk := i.token(root, fmt.Sprintf(`{"alg":"RS256","kid":%q}`, id), i.jwk())
	return i.token(i.key, fmt.Sprintf(`{"alg":"RS256","sjwk":%q}`, sjwk), i.payload(manifest))
}

// memory is an agent.Store in RAM.
type memory struct {
	text   []byte
	fail   error
	panics bool // in Save
}

func (m *memory) Load() ([]byte, error) { return m.text, m.fail }

func (m *memory) Save(text []byte) error {
	if m.panics {
		panic("bad disk")
	}
	if m.fail == nil {
		m.text = text
	}
	return m.fail
}

func TestRootKeysRotate(t *testing.T) {
	i := newIssuer(t)
	store := &memory{}
	keys, err := NewKeys(&KeysOptions{Roots: i.held(), Store: store})
	require.NoError(t, err)
	byAdded, byFirst := i.signedUnder("added", i.added), i.signedUnder("root", i.root)
	require.ErrorContains(t, keys.Verify([]byte(manifest), byAdded), "kid", "not yet trusted")
	require.NoError(t, keys.Verify([]byte(manifest), byFirst))

	require.NoError(t, keys.Update(i.packed(3, `"disabledRootKeys":["root"],`)))
	require.NoError(t, keys.Verify([]byte(manifest), byAdded))
	require.ErrorContains(t, keys.Verify([]byte(manifest), byFirst), "kid", "disabled")

	again, err := NewKeys(&KeysOptions{Roots: i.held(), Store: store})
	require.NoError(t, err)
	require.NoError(t, again.Verify([]byte(manifest), byAdded), "after a reset")
	require.ErrorContains(t, again.Update(i.packed(2, "")), "older than version 3")
	require.ErrorContains(t, again.Verify([]byte(manifest), byFirst), "kid", "an old package enables no key")
	earlier := strings.Replace(i.protected(3, ""), "1700000000", "1600000000", 1)
	require.ErrorContains(t, again.Update(i.pack(earlier, i.root, i.added, i.second)), "older than version 3")
	require.NoError(t, again.Update(store.text), "the same package")

	other, err := NewKeys(&KeysOptions{Roots: Roots{"added": &i.added.PublicKey, "new": &i.key.PublicKey}, Store: store})
	require.NoError(t, err, "a program with other root keys begins with those")
	require.Zero(t, other.now.version)
}

func TestRevokedSigningKeysAreRefused(t *testing.T) {
	i := newIssuer(t)
	keys, err := NewKeys(&KeysOptions{Roots: i.held()})
	require.NoError(t, err)
	good := i.signedUnder("root", i.root)
	require.NoError(t, keys.Verify([]byte(manifest), good))
	hash := fingerprintOf(&i.key.PublicKey)
	list := fmt.Sprintf(`"disabledSigningKeys":[{"alg":"SHA256","hash":%q}],`, encoding.EncodeToString(hash[:]))
	require.NoError(t, keys.Update(i.packed(1, list)))
	err = keys.Verify([]byte(manifest), good)
	require.ErrorContains(t, err, "revoked")
	require.Equal(t, transport.Untrusted, transport.KindOf(err))
}

func TestPackagesThatTheHeldKeysDoNotVouchForAreRefused(t *testing.T) {
	i := newIssuer(t)
	keys, err := NewKeys(&KeysOptions{Roots: i.held()})
	require.NoError(t, err)
	good := i.protected(1, "")
	replaced := func(old, by string) []byte {
		text := strings.Replace(good, old, by, 1)
		require.NotEqual(t, good, text, old)
		return i.pack(text, i.root, i.added, i.second)
	}
	for name, row := range map[string]struct {
		text []byte
		want string
	}{
		"no JSON":              {[]byte("{"), "no JSON object"},
		"large":                {make([]byte, maxPackage+1), "more than 65536"},
		"no signatures":        {i.pack(good), "no signature for each"},
		"too few":              {i.pack(good, i.root, i.added), "no signature for each"},
		"another order":        {i.pack(good, i.second, i.added, i.root), "not by the trusted key"},
		"one stolen root":      {i.pack(good, i.root, i.added, i.root), "not by the trusted key"},
		"only its own":         {i.pack(`{"version":1,"rootKeys":{`+member("added", i.added)+`}}`, i.added), "lacks 2"},
		"one of two":           {i.pack(`{"version":1,"rootKeys":{`+member("root", i.root)+`}}`, i.root), "lacks 1"},
		"one key twice":        {replaced(`"second":`, `"root":`), "two with one id"},
		"another algorithm":    {[]byte(strings.Replace(string(i.packed(1, "")), "RS256", "none", 1)), "by RS256"},
		"changed":              {[]byte(strings.Replace(string(i.packed(1, "")), "1700000000", "1800000000", 1)), "not by"},
		"for tests":            {replaced(`"isTest":false`, `"isTest":true`), "isTest"},
		"keys in a list":       {i.pack(`{"version":1,"rootKeys":[]}`), "rootKeys"},
		"a small exponent":     {replaced(`"e":65537`, `"e":3`), "exponent"},
		"a hash in MD5":        {i.packed(1, `"disabledSigningKeys":[{"alg":"MD5","hash":"AA"}],`), "SHA256"},
		"a hash of other size": {i.packed(1, `"disabledSigningKeys":[{"alg":"SHA256","hash":"AA"}],`), "size"},
	} {
		t.Run(name, func(t *testing.T) {
			err := keys.Update(row.text)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, transport.Untrusted, transport.KindOf(err))
		})
	}
	require.Zero(t, keys.now.version)
	require.NoError(t, keys.Update(i.packed(1, "")))
}

func TestTestKeysAreRefusedUnlessAskedFor(t *testing.T) {
	i := newIssuer(t)
	tests := Roots{"ADU.1.R.T": &i.root.PublicKey}
	_, err := NewKeys(&KeysOptions{Roots: tests})
	require.ErrorContains(t, err, "ADU.1.R.T is for tests")
	text := i.pack(fmt.Sprintf(`{"isTest":true,"version":1,"rootKeys":{%s}}`, member("ADU.1.R.T", i.root)), i.root)
	keys, err := NewKeys(&KeysOptions{Roots: tests, Test: true})
	require.NoError(t, err)
	require.NoError(t, keys.Update(text))

	strict, err := NewKeys(&KeysOptions{Roots: Roots{"root": &i.root.PublicKey}})
	require.NoError(t, err)
	mixed := fmt.Sprintf(`{"version":1,"rootKeys":{%s,%s}}`, member("root", i.root), member("x.T", i.added))
	require.NoError(t, strict.Update(i.pack(mixed, i.root, i.added)))
	require.ErrorContains(t, strict.Verify([]byte(manifest), i.signedUnder("x.T", i.added)), "kid",
		"a test key in a package of production")
}

// A full disk must neither fail an update nor keep a revoked key valid.
func TestAPackageCountsAlsoIfItCannotBeStored(t *testing.T) {
	i := newIssuer(t)
	store := &memory{}
	var failed []error
	keys, err := NewKeys(&KeysOptions{Roots: i.held(), Store: store,
		OnStoreError: func(err error) { failed = append(failed, err) }})
	require.NoError(t, err)
	full := errors.New("the disk at https://nas/?sig=abc1 is full")
	store.fail = full
	require.NoError(t, keys.Update(i.packed(1, `"disabledRootKeys":["root"],`)))
	require.ErrorContains(t, keys.Verify([]byte(manifest), i.signedUnder("root", i.root)), "kid", "disabled")
	_, err = NewKeys(&KeysOptions{Roots: i.held(), Store: store})
	require.ErrorIs(t, err, full)
	require.NotContains(t, err.Error(), "abc1")
	store.fail = (*os.PathError)(nil) // the methods of a nil pointer panic
	require.NoError(t, keys.Update(i.packed(1, `"disabledRootKeys":["root"],`)))
	store.fail, store.panics = nil, true
	require.NoError(t, keys.Update(i.packed(1, `"disabledRootKeys":["root"],`)))
	store.panics = false
	for range 2 {
		require.NoError(t, keys.Update(i.packed(1, `"disabledRootKeys":["root"],`)))
	}
	require.Len(t, failed, 3)
	require.ErrorIs(t, failed[0], full)
	require.NotContains(t, failed[0].Error(), "abc1")
	require.NotErrorIs(t, failed[1], full)
	require.EqualError(t, failed[2], "callback KeysOptions.Store panicked: bad disk")
	again, err := NewKeys(&KeysOptions{Roots: i.held(), Store: store})
	require.NoError(t, err)
	require.Equal(t, int64(1), again.now.version)
	for want, roots := range map[string]Roots{"is nil": {"root": nil}, "is empty": {}} {
		_, err = NewKeys(&KeysOptions{Roots: roots})
		require.ErrorContains(t, err, want)
	}
}

// No text changes the keys but a package that was signed.
func FuzzUpdate(f *testing.F) {
	i := newIssuer(f)
	good := i.packed(1, "")
	f.Add(good)
	f.Add(published)
	f.Add(i.pack(i.protected(1, ""), i.root))
	keys, err := NewKeys(&KeysOptions{Roots: i.held()})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		if keys.Update(text) == nil && (keys.now.version != 1 || keys.now.published != 1700000000) {
			t.Errorf("accepted %q", text)
		}
	})
}

func ExampleKeys_Update() {
	keys, err := NewKeys(nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(keys.Update(published))
	forged := base64.StdEncoding.EncodeToString(published)
	fmt.Println(keys.Update([]byte(forged)))
	// Output:
	// <nil>
	// update certificate not trusted: the package of root keys is no JSON object with protected and signatures
}

func TestFingerprintsAreThoseOfPKCS1(t *testing.T) {
	for _, bits := range []int{1024, 2047, 2048} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		require.NoError(t, err)
		require.Equal(t, x509.MarshalPKCS1PublicKey(&key.PublicKey), pkcs1(&key.PublicKey))
	}
	require.Equal(t, []byte{0x30, 0x06, 0x02, 0x01, 0x01, 0x02, 0x01, 0x03}, pkcs1(&rsa.PublicKey{N: big.NewInt(1), E: 3}))
}

func TestSignedBytesAreCompact(t *testing.T) {
	for _, text := range []string{`{}`, `{"é":"\u0020 "}`,
		"{ \"a b\" :\t[1 , \"\\\" \\\\\" ],\r\n \"u/r\\/l\":\"\\\\\\\" \" }"} {
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, []byte(text)))
		want := strings.ReplaceAll(strings.ReplaceAll(compact.String(), `\/`, `/`), `/`, `\/`)
		require.Equal(t, want, string(signedBytes([]byte(text))))
	}
}
