package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const tokenScheme = "SharedAccessSignature"

type KeyPair struct{ Primary, Secondary string }

// A Token is a parsed shared access signature.
type Token struct {
	Resource string // the text after "sr=", exactly as received
	Sig      []byte // decoded
	expiry   string // the text after "se=", exactly as received
	Expires  int64  // expiry in seconds since 1970
	Policy   string // empty = signed with a key of the identity
}

// IsToken reports whether a text begins as a token does.
func IsToken(s string) bool {
	scheme, _, ok := strings.Cut(s, " ")
	return ok && strings.EqualFold(scheme, tokenScheme)
}

// ParseToken parses
//
//	"SharedAccessSignature" SP field *( "&" field )
//
// with the fields sr, sig, se and skn in any order. Unknown fields are ignored.
func ParseToken(s string) (Token, error) {
	if !IsToken(s) {
		return Token{}, errors.New("token does not begin with " + tokenScheme)
	}
	_, fields, _ := strings.Cut(s, " ")
	var t Token
	seen := make(map[string]bool, 4)
	for field := range strings.SplitSeq(fields, "&") {
		name, value, _ := strings.Cut(field, "=")
		name = strings.ToLower(name)
		if seen[name] {
			return Token{}, fmt.Errorf("token names %s twice", name)
		}
		seen[name] = true
		switch name {
		case "sr":
			t.Resource = value
		case "sig":
			if strings.ContainsAny(value, "+/=") {
				return Token{}, errors.New("signature of the token is not percent-encoded")
			}
			text, err := url.PathUnescape(value)
			if err != nil {
				return Token{}, fmt.Errorf("signature of the token: %w", err)
			}
			if t.Sig, err = base64.StdEncoding.DecodeString(text); err != nil {
				return Token{}, fmt.Errorf("signature of the token: %w", err)
			}
		case "se":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil {
				return Token{}, fmt.Errorf("expiry of the token: %w", err)
			}
			t.expiry, t.Expires = value, int64(n)
		case "skn":
			text, err := url.PathUnescape(value)
			if err != nil {
				return Token{}, fmt.Errorf("policy of the token: %w", err)
			}
			t.Policy = text // present but empty is the same as absent
		}
	}
	switch {
	case t.Resource == "":
		return Token{}, errors.New("token has no resource")
	case len(t.Sig) == 0:
		return Token{}, errors.New("token has no signature")
	case t.expiry == "":
		return Token{}, errors.New("token has no expiry")
	}
	return t, nil
}

// SignedBy reports whether one of the keys made the signature. It covers the resource exactly as it
// stands in the token: clients encode it in different ways, so encoding it again would reject some
// of them.
func (t Token) SignedBy(keys KeyPair) bool {
	for _, key := range [...]string{keys.Primary, keys.Secondary} {
		raw, err := base64.StdEncoding.DecodeString(key)
		if err == nil && t.signedWith(raw) {
			return true
		}
	}
	return false
}

// SignedByText reports whether the text of one of the keys, not decoded, made the signature:
// clients of the Event Hubs endpoint sign in that way.
func (t Token) SignedByText(keys KeyPair) bool {
	return t.signedWith([]byte(keys.Primary)) || t.signedWith([]byte(keys.Secondary))
}

func (t Token) signedWith(key []byte) bool {
	if len(key) == 0 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(t.Resource + "\n" + t.expiry))
	return hmac.Equal(mac.Sum(nil), t.Sig)
}

// Covers reports whether the token's resource is the target or a parent of it, by whole path
// segments. The resource may be percent-encoded once, its device id twice.
func (t Token) Covers(host string, id Identity) bool {
	target := strings.Split(host+"/"+id.Resource(), "/")
	text := t.Resource
	for range 2 {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			return false
		}
		if text = decoded; isPrefix(strings.Split(text, "/"), target) {
			return true
		}
	}
	return false
}

// isPrefix compares by segment: the first, the host, in any letter case, the others exactly.
func isPrefix(path, target []string) bool {
	if len(path) > len(target) || !strings.EqualFold(path[0], target[0]) {
		return false
	}
	for i, segment := range path[1:] {
		if segment != target[i+1] {
			return false
		}
	}
	return true
}

// maxSeconds keeps expiry times within the range of time.Time and time.Duration.
const maxSeconds = 1 << 36

// Deadline returns the time from which the token is invalid.
func (t Token) Deadline(grace time.Duration) time.Time {
	return time.Unix(min(t.Expires, maxSeconds), 0).Add(grace)
}
