package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// LoadBulk reads and checks the bulk worker's configuration.
func LoadBulk(o BulkOptions) (*Bulk, error) {
	return bulkSchema.Load(o, nameKinds, (*Bulk).Validate)
}

// nameKinds sets the missing kind of each processor whose name is a kind.
func nameKinds(cfg *Bulk, _ *Problems) {
	for name, p := range cfg.Processors {
		if p.Kind == "" && slices.Contains([]string{KindWebhook, KindEmail, KindPush}, name) {
			p.Kind = name
			cfg.Processors[name] = p
		}
	}
}

// YAML returns the effective configuration as a file that LoadBulk reads, with secrets masked.
func (c *Bulk) YAML() ([]byte, error) { return settings.YAML(c) }

// Files lists every file that the configuration names.
func (c *Bulk) Files() []string { return settings.Files(c) }

// OnLoopback reports whether listen can be reached from this machine only, so that no token is required.
func (c *Bulk) OnLoopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// Active returns the sorted types whose processor is on and runs jobs in this process.
func (c *Bulk) Active() []string {
	var types []string
	for name, p := range c.Processors {
		if p.active() {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}

// Pulled returns the sorted types whose jobs workers lease over HTTP.
func (c *Bulk) Pulled() []string {
	var types []string
	for name, p := range c.Processors {
		if p.Kind == KindPull {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}

func (p Processor) active() bool {
	switch p.Kind {
	case KindWebhook:
		return p.URL != ""
	case KindEmail:
		return p.SMTP != ""
	}
	return p.Kind == KindPush && (p.FCM.CredentialsFile != "" || p.WebPush.VAPIDKeyFile != "" || p.APNs.KeyFile != "")
}

// APIBearer is one of api_tokens with its token read.
type APIBearer struct {
	Name    string
	Token   string
	Tenants []string
	APICeilings
}

// APICeilings are the limits that api_tokens set for a token; 0 and "" are no limit.
type APICeilings struct {
	Weight          float64
	Priority        string
	Pending, Groups int64
}

// Bearers reads the tokens of api_tokens; admin.token is not among them.
func (c *Bulk) Bearers() ([]APIBearer, error) {
	bearers := make([]APIBearer, 0, len(c.APITokens))
	for i, t := range c.APITokens {
		token, err := readTrimmed(t.TokenFile, shortToken)
		if err != nil {
			return nil, fmt.Errorf("%s.token_file: %w", settings.Element("api_tokens", i), err)
		}
		bearers = append(bearers, APIBearer{Name: t.Name, Token: token, Tenants: t.Tenants,
			APICeilings: APICeilings{Weight: t.MaxWeight, Priority: t.MaxPriority, Pending: t.MaxPending, Groups: t.MaxGroups}})
	}
	return bearers, nil
}

// WorkerBearer is one of worker_tokens with its token read.
type WorkerBearer struct {
	Name  string
	Token string
	Types []string
}

// WorkerBearers reads the tokens of worker_tokens.
func (c *Bulk) WorkerBearers() ([]WorkerBearer, error) {
	bearers := make([]WorkerBearer, 0, len(c.WorkerTokens))
	for i, t := range c.WorkerTokens {
		token, err := readTrimmed(t.TokenFile, shortToken)
		if err != nil {
			return nil, fmt.Errorf("%s.token_file: %w", settings.Element("worker_tokens", i), err)
		}
		bearers = append(bearers, WorkerBearer{Name: t.Name, Token: token, Types: t.Types})
	}
	return bearers, nil
}

// Secret reads the secret that signs callbacks; it returns nil without a file.
func (c *Callbacks) Secret() ([]byte, error) { return secretIn("callbacks.secret_file", c.SecretFile) }

// Secret reads the secret that signs the requests of a webhook; it returns nil without a file.
func (p *Processor) Secret() ([]byte, error) { return secretIn("secret_file", p.SecretFile) }

func secretIn(path, file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readTrimmed(file, shortToken)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return []byte(text), nil
}

// readTrimmed reads a file with a token or secret of at least that many bytes.
func readTrimmed(name string, least int) (string, error) {
	data, err := readSmall(name)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	if len(text) < least {
		return "", fmt.Errorf("%q holds %d characters; use at least %d, as from: openssl rand -hex 32", name, len(text), least)
	}
	return text, nil
}
