"""The jobs by which a daemon looks after its own files: pruning, backups, disk space."""

from agent.config.settings import Settings
from agent.daemon.periodic.backup_job import BackupJob
from agent.daemon.periodic.disk_watch import DiskWatch
from agent.daemon.periodic.job_scheduler import JobScheduler
from agent.daemon.periodic.prune_job import PruneJob
from agent.store.db.database import Database
from agent.tasks.worker.health import Health


class UpkeepJobs:
    """Pruning, backups and the watch over disk space; `add_jobs` before the scheduler starts."""

    def __init__(
        self, settings: Settings, database: Database, health: Health, jobs: JobScheduler
    ) -> None:
        self._settings = settings
        self._database = database
        self._jobs = jobs
        self._prune_job: PruneJob | None = None
        self.disks = DiskWatch(settings.disk, settings.data_directories, database, health)

    def add_jobs(self) -> None:
        """Add the jobs that the configuration turns on."""
        settings = self._settings
        if settings.prune.is_on:
            self._add_pruning()
        if settings.backup.every_hours > 0 and self._database.is_sqlite:
            self._add_backups()
        self._jobs.every("disk space", settings.disk.check_seconds, self.disks.run)

    def stop(self) -> None:
        """End a run of the pruning in progress after its current transaction."""
        if self._prune_job is not None:
            self._prune_job.stop()

    def _add_pruning(self) -> None:
        name = "prune"
        job = PruneJob(
            self._settings.prune, self._database, lambda instant: self._jobs.set_time(name, instant)
        )
        self._jobs.at(name, job.run)
        self._jobs.on_jump("prune after a jump", job.handle_jump)
        job.start()
        self._prune_job = job

    def _add_backups(self) -> None:
        name = "backup"
        job = BackupJob(
            self._settings.backup,
            self._settings.backup_directory,
            self._settings.disk.critical_mb,
            self._database,
            lambda instant: self._jobs.set_time(name, instant),
        )
        self._jobs.at(name, job.run)
        self._jobs.on_jump("backup after a jump", job.handle_jump)
        job.start()
