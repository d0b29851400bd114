"""Run the configurator once: plan, show or make the changes, and print the next steps."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from configurator.backup import RECORD, Backup, backups, mark, marked_backup, read_backup, remove_backup, unmark
from configurator.certificate_plan import SECRET, secret_name
from configurator.certificates import CLIENT_NAME
from configurator.difference import difference
from configurator.errors import ConfiguratorError, NotPutBack
from configurator.files import (
    locked,
    missing_directories,
    read_input,
    read_state,
    remove_staged,
    replace_files,
    signals_delayed,
)
from configurator.flags import DEFAULT_WEBHOOKS, Flags
from configurator.plan import Plan, make_plan
from gas.cluster.credentials import find_credentials
from gas.cluster.errors import ApiUnavailable, NoCluster, OutcomeUnknown
from gas.values.errors import GasError

API_SERVER_RESTART = 120.0  # most seconds that kubelet needs to restart kube-apiserver after its manifest has changed
Say = Callable[[str], None]  # prints one or several lines for the administrator


def run(flags: Flags, *, user: int, now: datetime, say: Say, coloured: bool) -> None:
    """Do what the flags ask for. Raises GasError; then nothing was changed, unless the sentence says so.

    ``user`` is the number of the user who runs the program.
    """
    for warning in flags.warnings:
        say(f"note: {warning}")
    if flags.dry_run:
        _show(make_plan(flags, now), say, coloured=coloured)
        return
    if user != 0:
        raise ConfiguratorError(
            "only root can change the control plane's files: run this as root, or use -dry-run to see the changes"
        )
    if flags.apply_secret:
        _check_kubeconfig(flags.kubeconfig)
    with locked(_locked_place(flags)):
        if flags.undo:
            with signals_delayed():
                _undo(flags, say)
            return
        plan = _change(flags, now, say)
    if flags.apply_secret:
        _apply(flags, plan, now, say)


def _check_kubeconfig(path: Path) -> None:
    """Raise ConfiguratorError if the kubeconfig for the Secret cannot be used. Sends nothing."""
    try:
        asyncio.run(find_credentials(str(path)))
    except NoCluster as error:
        what = error if path.exists() else f"kubeconfig {path}: the file does not exist"
        raise ConfiguratorError(
            f"nothing was changed, because --apply-secret needs an administrator's kubeconfig: {what}; name another "
            "one with --kubeconfig, or leave out --apply-secret"
        ) from error


def _apply(flags: Flags, plan: Plan, now: datetime, say: Say) -> None:
    """Write the authority into the webhooks, then the Secret into the cluster.

    So the API server already trusts the authority when the extender begins to present a certificate of it.
    """
    file = flags.own_directory / SECRET
    secret = secret_name(flags, read_state)
    patience = API_SERVER_RESTART if plan.touches(flags.api_server_manifest) else 0.0

    async def apply() -> None:
        from configurator.webhooks import trust
        from gas.cluster.connection import connect

        async with await connect(str(flags.kubeconfig), user_agent="gas-configurator") as api:
            changed, _ = await trust(api, flags.webhooks or DEFAULT_WEBHOOKS, plan.certificates.serving_authority, now)
            for sentence in changed:
                say(sentence)
            await api.request(
                "PATCH",
                f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}",
                query={"fieldManager": "gas-configurator", "force": "true"},
                body=read_input(file),
                content_type="application/apply-patch+yaml",
            )

    try:
        asyncio.run(_with_patience(apply, patience))
    except GasError as error:
        raise ConfiguratorError(
            f"all files are complete, but the Secret {secret} could not be applied to the cluster: {error}; run this "
            f"again, or kubectl apply -f {file}"
        ) from error
    say(f"the Secret {secret} is in the cluster")


async def _with_patience(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do the work, and repeat it for up to ``seconds`` while the API server cannot be reached."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except (ApiUnavailable, OutcomeUnknown):
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(1)


def _show(plan: Plan, say: Say, *, coloured: bool) -> None:
    _print_notes(plan, say)
    if plan.changes:
        say(difference(plan.changes, coloured=coloured).rstrip("\n"))
        say(f"dry run: {len(plan.changes)} file(s) would be changed, nothing was")
    else:
        say("dry run: nothing would be changed")


def _change(flags: Flags, now: datetime, say: Say) -> Plan:
    place = _locked_place(flags)
    with signals_delayed():
        if (restored := _finish_interrupted(place, say)) is not None:
            say(f"an earlier run did not finish; its changes were undone first ({restored})")
    plan = make_plan(flags, now)
    _print_notes(plan, say)
    if not plan.changes:
        say("nothing to change")
        return plan
    directories = missing_directories(plan.changes)
    backup = Backup.of(flags.backups or place, plan.changes, directories, now)
    with signals_delayed():
        mark(place, backup.directory)
        try:
            backup.write(plan.changes)
            replace_files(plan.changes, directories)
        except NotPutBack as error:
            raise NotPutBack(
                f"{error}. The earlier files are in {backup.directory}: fix the cause and run this again, which first "
                "undoes what this run changed"
            ) from error
        except ConfiguratorError:
            if backup.directory.exists():
                remove_backup(backup.directory)
            unmark(place)
            raise
        if flags.backups is None:
            remove_backup(backup.directory)
        unmark(place)
    for change in plan.changes:
        say(f"{'changed' if change.before is not None else 'created'} {change.path}")
    if flags.backups is not None:
        say(f"backup: {backup.directory}; --undo restores it")
    _print_next_steps(flags, plan, say)
    return plan


def _locked_place(flags: Flags) -> Path:
    """Return the directory that every run locks and that holds the marker of the run in progress."""
    return flags.manifest.parent.parent


def _finish_interrupted(place: Path, say: Say) -> str | None:
    """Restore the files of an interrupted run. Return the name of its backup; None if nothing was changed."""
    directory = marked_backup(place)
    if directory is None:
        return None
    if not (directory / RECORD).exists():
        remove_backup(directory)
        unmark(place)
        return None
    backup = read_backup(directory)
    remove_staged(Path(file.path) for file in backup.record.files)
    _restore(backup, place, say)
    return directory.name


def _undo(flags: Flags, say: Say) -> None:
    place = _locked_place(flags)
    root = flags.backups or place
    secret = secret_name(flags, read_state)
    restored = _finish_interrupted(place, say)
    if restored is None:
        found = backups(root)
        if not found:
            raise ConfiguratorError(f"{root} contains no backup of a run, so there is nothing to undo")
        _restore(found[0], place, say)
        restored = found[0].directory.name
    say(f"undid {restored}")
    if earlier := backups(root):
        say(f"the run before it can be undone as well: {earlier[0].directory.name}")
    say(f"the Secret {secret} stays in the cluster; kubectl delete secret --namespace={secret.namespace} {secret.name} "
        "deletes it")  # fmt: skip


def _restore(backup: Backup, place: Path, say: Say) -> None:
    """Restore the files of a backup, and remove it. If this is killed, the next run does the rest."""
    changes = backup.undoing()
    was_marked = marked_backup(place) is not None
    mark(place, backup.directory)
    try:
        replace_files(changes)
    except NotPutBack as error:
        raise NotPutBack(
            f"{error}. They are as they were before {backup.directory.name}, the other files are not: fix the cause "
            "and run the same again"
        ) from error
    except ConfiguratorError:
        if not was_marked:
            unmark(place)
        raise
    for directory in reversed(backup.record.directories):
        with contextlib.suppress(OSError):  # not empty: another program has put something there
            Path(directory).rmdir()
    for change in changes:
        say(f"{'restored' if change.after is not None else 'removed'} {change.path}")
    unmark(place)
    remove_backup(backup.directory)


def _print_notes(plan: Plan, say: Say) -> None:
    for note in plan.certificates.notes:
        say(f"new: {note}")
    for warning in plan.warnings:
        say(f"note: {warning}")


def _print_next_steps(flags: Flags, plan: Plan, say: Say) -> None:
    secret = flags.own_directory / SECRET
    if not flags.apply_secret and plan.touches(secret):
        say(f"next: kubectl apply -f {secret}, which gives the extender its certificates")
    if plan.certificates.cluster_authority is not None:
        say(
            "note: the cluster's authority signs every kubelet's certificate too; start the extender with "
            f"--allowed-names={CLIENT_NAME}"
        )
