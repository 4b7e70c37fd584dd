package identity

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestValidTokens(t *testing.T) {
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.PS512, jose.ES256, jose.ES384, jose.EdDSA} {
		s := newSigner(t, "k1", alg)
		i := &issuer{bytes: set(t, newSigner(t, "k0", jose.ES256).jwk(), s.jwk())}
		tokens := i.tokens(&logBook{})
		end := time.Now().Add(time.Hour).Truncate(time.Second)
		got, err := tokens.Verify(t.Context(), s.sign(t, good(claims{"aud": []string{"other", "xds"}, "exp": end.Unix(), "nbf": time.Now().Add(20 * time.Second).Unix(), "iat": time.Now().Add(20 * time.Second).Unix(), "team": "a"})), time.Now())
		if err != nil {
			t.Errorf("SAFE-13 %s: %v", alg, err)
			continue
		}
		if got.Subject != "edge-1" || got.Claims["team"] != "a" || !got.Expires.Equal(end.Add(leeway)) {
			t.Errorf("%s: %+v", alg, got)
		}
	}
	t.Run("SAFE-13 a token without a key id is tried with the keys of its algorithm", func(t *testing.T) {
		s := newSigner(t, "k1", jose.ES256)
		i := &issuer{bytes: set(t, newSigner(t, "k0", jose.ES256).jwk(), newSigner(t, "r", jose.RS256).jwk(), s.jwk())}
		s.id = ""
		if _, err := i.tokens(&logBook{}).Verify(t.Context(), s.sign(t, good()), time.Now()); err != nil {
			t.Error(err)
		}
	})
}

// Any invalid token is refused with the reason, and no part of it is shown.
func TestInvalidTokens(t *testing.T) {
	s, other, rsaKey := newSigner(t, "k1", jose.ES256), newSigner(t, "k1", jose.ES256), newSigner(t, "rsa", jose.RS256)
	i := &issuer{bytes: set(t, s.jwk(), rsaKey.jwk())}
	one := rsaKey.jwk() // a key for only one algorithm
	one.KeyID, one.Algorithm = "one", "RS256"
	i.bytes = set(t, s.jwk(), rsaKey.jwk(), one)
	tokens := i.tokens(&logBook{})
	ok := s.sign(t, good())
	parts := strings.Split(ok, ".")
	der, err := x509.MarshalPKIXPublicKey(rsaKey.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	body, _ := json.Marshal(good())
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: other.key, KeyID: "k1"}}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := embedded.Sign(body)
	withOwn, _ := o.CompactSerialize()
	now := time.Now()
	marker := "MARKER"
	for name, tt := range map[string]struct{ token, want string }{
		"no algorithm":               {part(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + ".", `the algorithm "none"`},
		"no algorithm, in capitals":  {part(`{"alg":"nOnE"}`) + "." + parts[1] + "." + parts[2], `the algorithm "nOnE"`},
		"HS256 with the public key":  {signed(t, jose.HS256, public, "rsa", body), `the algorithm "HS256"`},
		"HS256 with its DER":         {signed(t, jose.HS256, der, "rsa", body), `the algorithm "HS256"`},
		"an algorithm of nobody":     {part(`{"alg":"`+strings.Repeat("x", 1000)+`"}`) + ".e30.", `the algorithm "xxx`},
		"another key of that id":     {other.sign(t, good()), `not made with the issuer's key "k1"`},
		"a key of its own":           {withOwn, `not made with the issuer's key "k1"`},
		"an algorithm of other keys": {signed(t, jose.RS256, rsaKey.key, "k1", body), `which the issuer does not have for RS256`},
		"its key for another one":    {signed(t, jose.RS512, rsaKey.key, "one", body), `which the issuer does not have for RS512`},
		"an unknown key":             {newSigner(t, "k9", jose.ES256).sign(t, good()), `the key "k9", which the issuer does not have`},
		"an unknown key, long":       {newSigner(t, strings.Repeat("k", 1000), jose.ES256).sign(t, good()), `…", which the issuer does not have`},
		"control bytes in its key":   {newSigner(t, "\x1b[31m\n", jose.ES256).sign(t, good()), `the key "\x1b[31m\n", which`},
		"expired":                    {s.sign(t, good(claims{"exp": now.Add(-time.Minute).Unix()})), "expired at 20"},
		"never expires":              {s.sign(t, good(claims{"exp": nil})), "has no expiry time"},
		"expires at a text":          {s.sign(t, good(claims{"exp": "tomorrow"})), "its claims do not conform"},
		"expires out of range":       {s.sign(t, good(claims{"exp": 1e300})), "its claims do not conform"},
		"not yet valid":              {s.sign(t, good(claims{"nbf": now.Add(time.Hour).Unix()})), "is not valid before 20"},
		"not yet valid by a minute":  {s.sign(t, good(claims{"nbf": now.Add(time.Minute).Unix()})), "is not valid before 20"},
		"not valid for ages":         {s.sign(t, good(claims{"nbf": 1e17})), "is not valid before a time out of range"},
		"from the future":            {s.sign(t, good(claims{"iat": now.Add(time.Hour).Unix()})), "from the future"},
		"another audience":           {s.sign(t, good(claims{"aud": []string{"vault"}})), `for another audience (aud): this server is "chancery, xds"`},
		"no audience":                {s.sign(t, good(claims{"aud": nil})), "for another audience"},
		"an audience of numbers":     {s.sign(t, good(claims{"aud": 7})), "its claims do not conform"},
		"another issuer":             {s.sign(t, good(claims{"iss": "https://issuer.example/"})), `not from the issuer "https://issuer.example"`},
		"no subject":                 {s.sign(t, good(claims{"sub": nil})), "no subject"},
		"a subject that is a list":   {s.sign(t, good(claims{"sub": []string{"a"}})), "its claims do not conform"},
		"huge":                       {s.sign(t, good(claims{"x": strings.Repeat("x", maxToken)})), "at most 8192 are allowed"},
		"huge and no token":          {strings.Repeat(".", 1<<20), "has 1048576 bytes: at most 8192"},
		"claims that are a list":     {signed(t, jose.ES256, s.key, "k1", []byte(`[]`)), "its claims do not conform"},
		"claims that are null":       {signed(t, jose.ES256, s.key, "k1", []byte(`null`)), "not from the issuer"},
		"deep claims":                {signed(t, jose.ES256, s.key, "k1", []byte(strings.Repeat(`{"a":`, 700)+"1"+strings.Repeat("}", 700))), "the token "},
		"a claim twice":              {signed(t, jose.ES256, s.key, "k1", []byte(`{"iss":"x","iss":"https://issuer.example","aud":"chancery","sub":"a","exp":99999999999}`)), "its claims do not conform"},
		"empty":                      {"", "malformed"},
		"words":                      {marker, "malformed"},
		"points":                     {"..", `the algorithm ""`},
		"points and header":          {part(`{"alg":"ES256"}`) + "..", "token"},
		"not base64":                 {parts[0] + "." + parts[1] + ".%%%", "malformed"},
		"padded base64":              {ok + "==", "malformed"},
		"header that is no JSON":     {part(marker) + "." + parts[1] + "." + parts[2], "malformed"},
		"header with unknown crit":   {part(`{"alg":"ES256","kid":"k1","crit":["`+marker+`"],"`+marker+`":1}`) + "." + parts[1] + "." + parts[2], "the token"},
		"a point in front":           {"." + ok, "malformed"},
		"encrypted":                  {"a.b.c.d.e", "is encrypted (JWE)"},
		"JSON instead of compact":    {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "malformed"},
		"no signature":               {parts[0] + "." + parts[1] + ".", "signature is wrong"},
		"the signature of another":   {parts[0] + "." + part(`{"sub":"`+marker+`"}`) + "." + parts[2], "signature is wrong"},
	} {
		t.Run("SAFE-13 "+name, func(t *testing.T) {
			start := time.Now()
			got, err := tokens.Verify(t.Context(), tt.token, now)
			took := time.Since(start)
			refused := &Refused{}
			if got != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, %v; want a refusal with %q", got, err, tt.want)
			}
			if n := len(err.Error()); n > 300 || strings.Contains(err.Error(), marker) || len(parts[2]) > 0 && strings.Contains(err.Error(), parts[2]) {
				t.Errorf("the error quotes the token, or is too long: %v", err)
			}
			if took > time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if _, err := tokens.Verify(t.Context(), ok, now); err != nil {
		t.Errorf("the valid token: %v", err)
	}
	if n := i.count(); n > 2 {
		t.Errorf("the keys were read %d times", n)
	}
}

func TestBearer(t *testing.T) {
	for _, tt := range []struct {
		values []string
		token  string
		fails  bool
	}{
		{nil, "", false},
		{[]string{"Bearer a.b.c"}, "a.b.c", false},
		{[]string{" bearer  a.b.c "}, "a.b.c", false},
		{[]string{"Bearer"}, "", true},
		{[]string{"Bearer "}, "", true},
		{[]string{""}, "", true},
		{[]string{"Basic dTpw"}, "", true},
		{[]string{"a.b.c"}, "", true},
		{[]string{"Bearer a", "Bearer b"}, "", true},
	} {
		token, err := Bearer(tt.values)
		if token != tt.token || (err != nil) != tt.fails || err != nil && strings.Contains(err.Error(), "dTpw") {
			t.Errorf("SAFE-13 %q: %q, %v", tt.values, token, err)
		}
	}
}

// A token of any bytes is refused, without a panic.
func FuzzVerify(f *testing.F) {
	s := newSigner(f, "k1", jose.ES256)
	i := &issuer{bytes: set(f, s.jwk())}
	tokens := i.tokens(&logBook{})
	ok := s.sign(f, good())
	f.Add(ok)
	f.Add(part(`{"alg":"none"}`) + ".e30.")
	f.Add(part(`{"alg":"ES256","jwk":{}}`) + ".e30.AAAA")
	f.Add(part(`{"alg":"ES256","x5c":["AAAA"],"crit":["b64"],"b64":false}`) + ".e30.AAAA")
	f.Add("....")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := tokens.Verify(t.Context(), token, time.Now())
		if err == nil && token != ok && !strings.HasPrefix(token, ok[:strings.LastIndex(ok, ".")]) {
			t.Fatal(fmt.Sprint(got), token)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Error(err)
		}
	})
}

// BenchmarkVerify measures the cost of a token for a stream or poll.
func BenchmarkVerify(b *testing.B) {
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA} {
		b.Run(string(alg), func(b *testing.B) {
			s := newSigner(b, "k", alg)
			i := &issuer{bytes: set(b, s.jwk())}
			tokens, token := i.tokens(&logBook{}), s.sign(b, good())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tokens.Verify(b.Context(), token, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
