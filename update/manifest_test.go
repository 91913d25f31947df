package update

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

const sample = "hubline-update 1\nmodel roof-sensor\nversion 7\nsize 262144\n" +
	"sha256 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\nsignature c2lnbmVk\n"

func TestAManifestIsReadAsItIsWritten(t *testing.T) {
	m, signed, signature, err := ParseManifest([]byte(sample))
	require.NoError(t, err)
	want := Manifest{Model: "roof-sensor", Image: Image{Version: 7, Size: 262144}}
	for i := range want.SHA256 {
		want.SHA256[i] = byte(i)
	}
	require.Equal(t, want, m)
	require.Equal(t, "signed", string(signature))
	require.True(t, strings.HasSuffix(string(signed), "1e1f\n"))
	text, err := AppendManifest(nil, &m)
	require.NoError(t, err)
	require.Equal(t, string(signed), string(text))
	require.Equal(t, sample, string(AppendSignature(text, signature)))
}

func TestAMalformedManifestIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, new, text string }{
		"first line":       {"hubline-update 1", "hubline-update 2", "first line"},
		"no model":         {"model roof-sensor\n", "", "line model"},
		"model with space": {"roof-sensor", "roof sensor", "line model"},
		"empty model":      {"roof-sensor", "", "line model"},
		"long model":       {"roof-sensor", strings.Repeat("x", 65), "line model"},
		"version 0":        {"version 7", "version 0", "line version"},
		"leading zero":     {"version 7", "version 07", "line version"},
		"signed version":   {"version 7", "version +7", "line version"},
		"large version":    {"version 7", "version 4294967296", "line version"},
		"order":            {"version 7\nsize 262144", "size 262144\nversion 7", "line version"},
		"size 0":           {"size 262144", "size 0", "line size"},
		"large size":       {"size 262144", "size 1073741825", "line size"},
		"short hash":       {"1e1f", "1e", "line sha256"},
		"capital digits":   {"0a0b", "0A0B", "line sha256"},
		"other digits":     {"0a0b", "0g0h", "line sha256"},
		"no signature":     {"signature c2lnbmVk\n", "", "line signature"},
		"empty signature":  {"c2lnbmVk", "", "line signature"},
		"no base64":        {"c2lnbmVk", "c2lnbmV!", "line signature"},
		"loose base64":     {"c2lnbmVk", "c2lnbmVkZZ==", "line signature"},
		"a line more":      {"c2lnbmVk\n", "c2lnbmVk\nx\n", "line signature"},
		"no last feed":     {"c2lnbmVk\n", "c2lnbmVk", "line signature"},
		"carriage return":  {"version 7\n", "version 7\r\n", "line version"},
		"too long":         {"c2lnbmVk", strings.Repeat("AAAA", 150), "512 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, sample, c.old)
			_, _, _, err := ParseManifest([]byte(strings.Replace(sample, c.old, c.new, 1)))
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	for n := range len(sample) {
		_, _, _, err := ParseManifest([]byte(sample[:n]))
		require.ErrorIs(t, err, transport.Invalid, "cut to %d bytes", n)
	}
	for _, m := range []Manifest{
		{}, {Model: "x"}, {Model: "x", Image: Image{Version: 1}}, {Model: "x\n", Image: Image{Version: 1, Size: 1}},
		{Model: "x", Image: Image{Version: 1, Size: MaxSize + 1}},
	} {
		_, err := AppendManifest(nil, &m)
		require.ErrorIs(t, err, transport.Invalid, "%+v", m)
	}
}

func TestNamesOfUnknownValues(t *testing.T) {
	require.Equal(t, "trying", PhaseTrying.String())
	require.Equal(t, "unknown", (PhaseTrying + 1).String())
	require.Equal(t, "corrupt", OutcomeCorrupt.String())
	require.Equal(t, "unknown", Outcome(255).String())
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(strings.Replace(sample, "7", "4294967295", 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, signed, signature, err := ParseManifest(text)
		if err != nil {
			require.ErrorIs(t, err, transport.Invalid)
			return
		}
		again, err := AppendManifest(nil, &m)
		require.NoError(t, err)
		require.Equal(t, string(signed), string(again))
		require.Equal(t, string(text), string(AppendSignature(again, signature)), "there is one text for each manifest")
	})
}

// Records with a right check and any content do no harm.
func FuzzRecord(f *testing.F) {
	r := newRig(&testing.T{})
	p := make([]byte, recordBytes(writeBlock))
	s := state{phase: PhaseReady, tries: 2, images: [2]Image{imageOf(1, r.old), imageOf(2, r.new)}}
	s.encode(p)
	f.Add(p[:atCheck])
	s.phase, s.active = PhaseTrying, 1
	s.encode(p)
	f.Add(p[:atCheck])
	f.Fuzz(func(t *testing.T, content []byte) {
		r := newRig(t)
		p := make([]byte, recordBytes(writeBlock))
		var s state
		s.encode(p)
		copy(p[:atCheck], content)
		reseal(p)
		require.NoError(t, r.flash.EraseBlocks(0, 2))
		_, err := r.flash.WriteAt(p, 0)
		require.NoError(t, err)
		slot, err := Boot(&r.layout, make([]byte, 64))
		require.Contains(t, []int{0, 1}, slot)
		if err != nil {
			require.NotNil(t, transport.Find(err))
		}
		if u, err := Open(r.options()); err == nil {
			st := u.Status()
			require.NotEmpty(t, st.AppendJSON(nil))
			_ = r.download(u)
		}
	})
}
