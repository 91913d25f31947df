package files

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// With a line break in a field, the text to sign would be that of another SAS as well.
func TestALineBreakInAFieldMakesNoSignature(t *testing.T) {
	var k blobKeys
	k.init()
	for _, field := range []string{"sp", "st", "se", "si", "sip", "spr", "sv", "rscc", "rsct"} {
		require.Empty(t, k.signature("c-1", "", url.Values{field: {"a\nb"}}), field)
	}
	require.Empty(t, k.signature("c-1", "a\nb", url.Values{"sr": {"b"}}))
	require.NotEmpty(t, k.signature("c-1", "a", url.Values{"sr": {"b"}}))
}
