package deps

import (
	_ "github.com/SherClockHolmes/webpush-go"
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/emersion/go-smtp"
	_ "github.com/go-redsync/redsync/v4"
	_ "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/wneessen/go-mail"
	_ "golang.org/x/oauth2"
	_ "golang.org/x/oauth2/google"
	_ "golang.org/x/oauth2/jwt"
	_ "golang.org/x/term"
	_ "golang.org/x/time/rate"
)
