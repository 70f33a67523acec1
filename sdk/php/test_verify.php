<?php

// Runs the cases of ../vectors.json. With --lines DIR it verifies the requests in each line of its input instead, and prints the
// results as a line, for test/sdk. DIR is the directory of the cache.

declare(strict_types=1);

require __DIR__ . '/anteroom.php';

function verifier(array $config, callable $now, string $cache): Anteroom\Verifier
{
    if (isset($config['revoked'])) {
        $list = json_encode((isset($config['evacuated']) ? ['evacuated' => $config['evacuated']] : []) + ['revoked' => array_map(fn ($sid) => ['sid' => $sid], $config['revoked'])]);
        $config['revoked_url'] = 'http://gateway.test/' . hash('sha256', json_encode($config)) . '/{room}/revoked';
        $config['fetch'] = fn ($url, $etag) => [200, '', $list];
    }
    return new Anteroom\Verifier(['now' => $now, 'cache_dir' => $cache] + $config);
}

/** Returns header fields as PHP's servers do. */
function request(array $headers): array
{
    $server = [];
    foreach ($headers as [$name, $value]) {
        $key = 'HTTP_' . strtoupper(strtr($name, '-', '_'));
        $server[$key] = isset($server[$key]) ? $server[$key] . ($key === 'HTTP_COOKIE' ? '; ' : ', ') . $value : $value;
    }
    return $server;
}

if (($argv[1] ?? '') === '--lines') {
    $verifiers = [];
    while (($line = fgets(STDIN)) !== false) {
        $call = json_decode($line, true);
        $now = $call['now'];
        $verifiers[$call['id']] ??= verifier($call['config'], function () use (&$now) { return $now; }, $argv[2]);
        echo json_encode(array_map(fn ($r) => $verifiers[$call['id']]->verify(request($r['headers']), $r['room']), $call['requests'])), "\n";
    }
    exit(0);
}

$cache = sys_get_temp_dir() . '/anteroom-test-' . bin2hex(random_bytes(8));
mkdir($cache, 0700);
$cases = json_decode(file_get_contents(__DIR__ . '/../vectors.json'), true);
$failed = 0;
foreach ($cases as $case) {
    $got = verifier($case['config'], fn () => $case['now'], $cache)->verify(request($case['headers']), $case['room']);
    if ($got !== $case['want']) {
        $failed++;
        fwrite(STDERR, "{$case['name']}: " . json_encode($got) . ', want ' . json_encode($case['want']) . "\n");
    }
}
array_map(unlink(...), glob("$cache/*"));
rmdir($cache);
echo 'php: ', count($cases) - $failed, ' of ', count($cases), " cases\n";
exit($failed > 0 ? 1 : 0);
