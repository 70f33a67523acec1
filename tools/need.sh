#!/usr/bin/env bash
# Install missing commands with apt-get or brew, and print their names first.
# usage: tools/need.sh COMMAND...
set -euo pipefail

# found COMMAND: reports whether a command exists, also outside of a user's PATH (Debian's servers) or under another name.
found() {
	case $1 in
	nginx | haproxy) command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] ;;
	redis-server) command -v redis-server >/dev/null || command -v valkey-server >/dev/null ;;
	chromium)
		for c in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
			if command -v "$c" >/dev/null; then return 0; fi
		done
		for app in "/Applications/Google Chrome.app" "/Applications/Chromium.app"; do
			if [ -d "$app" ]; then return 0; fi
		done
		return 1
		;;
	chromium-headless-shell) command -v "$1" >/dev/null || ! apt-cache show "$1" >/dev/null 2>&1 ;; # nothing to install outside Debian
	python3-sklearn) [ -n "$(python sklearn)" ] ;;
	python3-flask) [ -n "$(python flask)" ] ;;
	python3-django) [ -n "$(python django)" ] ;;
	python3-cryptography) [ -n "$(python cryptography)" ] ;;
	postgres) command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;;
	mariadbd) command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] ;;
	tomcat10) [ -f /usr/share/tomcat10/bin/bootstrap.jar ] && command -v java >/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

# python MODULE: prints the first interpreter that has the module; the system's interpreter is tried last.
python() {
	for p in python3 /usr/bin/python3; do
		if "$p" -c "import $1" >/dev/null 2>&1; then
			echo "$p"
			return
		fi
	done
}
if [ "${1:-}" = --python ]; then
	python sklearn
	exit
fi

missing=()
for c in "$@"; do
	found "$c" || missing+=("$c")
done
if [ "${#missing[@]}" -eq 0 ]; then exit 0; fi

# package MANAGER COMMAND
package() {
	case $1-$2 in
	apt-gcc) echo gcc libc6-dev ;;
	apt-luacheck) echo lua-check ;;
	apt-tomcat10) echo tomcat10-common default-jre-headless ;; # tomcat10 itself would start a service
	apt-node) echo nodejs ;;
	apt-postgres) echo postgresql ;;
	apt-mariadbd) echo mariadb-server-core ;; # without a service
	brew-postgres) echo postgresql ;;
	brew-mariadbd) echo mariadb ;;
	apt-php) echo php-cli ;;
	apt-javac) echo default-jdk-headless ;;
	apt-chromium) if apt-cache show chromium >/dev/null 2>&1; then echo chromium; else echo chromium-browser; fi ;;
	brew-gcc) echo gcc ;;
	brew-python3-sklearn) echo scikit-learn ;;
	brew-python3-cryptography) echo cryptography ;;
	brew-javac) echo openjdk ;;
	brew-redis-server) echo redis ;;
	brew-npm) echo node ;;
	*-promtool) echo prometheus ;;
	brew-chromium) echo --cask google-chrome ;;
	*) echo "$2" ;;
	esac
}

if command -v apt-get >/dev/null; then
	as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || {
			echo "missing: ${missing[*]}. Install them as root (there is no sudo here), then run this again." >&2
			exit 1
		}
		as_root=(sudo)
	fi
	echo "missing: ${missing[*]}. Refreshing the package lists and installing with apt-get." >&2
	${as_root[@]+"${as_root[@]}"} apt-get update -qq
	packages=()
	for c in "${missing[@]}"; do
		# shellcheck disable=SC2207
		packages+=($(package apt "$c"))
	done
	echo "apt-get install ${packages[*]}" >&2
	${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
elif command -v brew >/dev/null; then
	for c in "${missing[@]}"; do
		echo "missing: $c. brew install $(package brew "$c")" >&2
		# shellcheck disable=SC2046
		brew install $(package brew "$c") >&2
	done
else
	echo "missing: ${missing[*]}. Neither apt-get nor brew is available: install them by hand, then run this again." >&2
	exit 1
fi

for c in "${missing[@]}"; do
	found "$c" || {
		echo "$c is still missing after the installation." >&2
		exit 1
	}
done
