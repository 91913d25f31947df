package updates

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

func TestKeysFollowFromTheSeed(t *testing.T) {
	one := privateKey(7, "a")
	require.Same(t, one, privateKey(7, "a"), "a key is made once")
	keys.Clear()
	require.True(t, one.Equal(privateKey(7, "a")))
	require.False(t, one.Equal(privateKey(8, "a")))
	require.Equal(t, 3072, one.N.BitLen())
}

func newService(t testing.TB, o Options) *Service {
	s, err := New(o)
	require.NoError(t, err)
	return s
}

func part(t *testing.T, token string, n int) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[n])
	require.NoError(t, err)
	return b
}

func TestSignaturesHaveTheFormOfTheService(t *testing.T) {
	s := newService(t, Options{Seed: 7})
	manifest := []byte(`{"manifestVersion":"5"}`)
	outer := s.Sign(manifest)
	var header struct{ Alg, SJWK string }
	require.NoError(t, json.Unmarshal(part(t, outer, 0), &header))
	require.Equal(t, `{"alg":"RS256","kid":"ADU.260101.R"}`, string(part(t, header.SJWK, 0)))
	sum := sha256.Sum256(manifest)
	require.Equal(t, `{"sha256":"`+base64.StdEncoding.EncodeToString(sum[:])+`"}`, string(part(t, outer, 1)))
	require.Regexp(t, `^\{"kty":"RSA","n":"[A-Za-z0-9+/]{512}","e":"AQAB","alg":"RS256","kid":"ADU.260201.R.S"\}$`,
		string(part(t, header.SJWK, 1)))
	for token, key := range map[string]*rsa.PublicKey{
		outer: &privateKey(7, "ADU.260201.R.S").PublicKey, header.SJWK: s.Roots()["ADU.260101.R"],
	} {
		signed := token[:strings.LastIndex(token, ".")]
		sum := sha256.Sum256([]byte(signed))
		require.NoError(t, rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], part(t, token, 2)))
	}
}

func TestTheNewestDeploymentOfADeviceIsOffered(t *testing.T) {
	s := newService(t, Options{Seed: 7, FileURL: "https://files.example.test/"})
	id := updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.1"}
	require.NoError(t, s.Publish(updatedata.Update{ID: id,
		Compatibility: []map[string]string{{"manufacturer": "Contoso", "model": "Tractor"}},
		Steps:         []updatedata.Step{{Handler: "microsoft/swupdate:1", Files: []string{"a.swu"}}},
		Files:         []updatedata.File{{Name: "a.swu", Content: []byte("image")}},
	}))
	require.Nil(t, s.Offer("d1", nil))
	_, err := s.Deploy(updatedata.Deployment{WorkflowID: "wf-1", Update: id})
	require.NoError(t, err)
	require.Nil(t, s.Offer("d1", nil), "its properties are unknown")
	s.deviceLocked("d1").state(Agent{Properties: map[string]string{"Manufacturer": "contoso", "MODEL": "tractor"}})
	o := s.Offer("D1", nil)
	require.Equal(t, "wf-1", o.WorkflowID)
	require.Len(t, o.URLs, 1)
	_, err = s.Deploy(updatedata.Deployment{WorkflowID: "wf-2", Update: id})
	require.NoError(t, err)
	require.Equal(t, "wf-2", s.Offer("d1", nil).WorkflowID)
	d := s.Device("d1")
	require.Equal(t, "wf-2", d.Last().ID)
}
