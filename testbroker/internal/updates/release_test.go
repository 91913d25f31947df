package updates

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

func TestFilesAreServedAsLongAsTheirUpdate(t *testing.T) {
	kept := memory{}
	s := newService(t, Options{Store: kept})
	oven := toaster
	oven.ID.Name = "Oven"
	oven.Steps = []updatedata.Step{{Reference: lever.ID, Description: strings.Repeat("x", maxTwinManifest)}}
	for _, u := range []updatedata.Update{lever, toaster, oven} {
		require.NoError(t, s.Publish(u))
	}
	_, err := s.Deploy(updatedata.Deployment{Update: oven.ID, Incompatible: true})
	require.NoError(t, err)
	good := s.fit("dev-1", s.Offer("dev-1", nil))
	require.Len(t, good.URLs, 3, "both manifests, and the file of the other update")
	s.fit("dev-2", s.Offer("dev-2", func(fault.Kind) *fault.Fault { return &fault.Fault{Text: "size"} }))
	var m manifest
	require.NoError(t, json.Unmarshal(good.Manifest, &m))
	for id, doc := range m.Files {
		d, ok := s.File(id, nil)
		require.True(t, ok)
		sum := sha256.Sum256(d.Content)
		require.Equal(t, doc.Hashes.SHA256, base64.StdEncoding.EncodeToString(sum[:]), "another device's offer is wrong")
	}

	s.Close()
	s = newService(t, Options{Store: kept})
	defer s.Close()
	require.NoError(t, s.Remove(toaster.ID))
	for id := range good.URLs {
		_, ok := s.File(id, nil)
		require.True(t, ok)
	}
	require.EqualError(t, s.Remove(lever.ID), "testbroker: in use: update Contoso/Lever/2.0, to which Contoso/Oven/1.0 "+
		"refers; remove Contoso/Oven/1.0 first")
	require.NoError(t, s.Remove(oven.ID))
	require.NoError(t, s.Remove(lever.ID))
	require.Empty(t, s.files)
}
