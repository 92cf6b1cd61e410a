//! Warm starts as they are requested: the pool, what makes a template, and why a call starts cold.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::CString;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Error, Result};
use crate::process::spec::Program;
use crate::sync::lock;
use crate::witness::Witness;

/// How many recipes a pool recognises.
const MOST_RECIPES: usize = 64;

/// Why a job with a template starts cold, in words for its trace.
pub(in crate::process) type ColdReason = Cow<'static, str>;

pub(super) const RESTS: ColdReason = Cow::Borrowed("its template can't fork at present");

/// The place of a call that started cold beside its template, until it is dropped.
#[derive(Debug, Clone)]
pub(in crate::process) struct ColdSlot {
    pub(super) key: Key,
    _held: Arc<()>,
}

impl ColdSlot {
    /// A place among those that are counted.
    pub(super) fn new(key: Key, counted: &Arc<()>) -> Self {
        Self {
            key,
            _held: Arc::clone(counted),
        }
    }
}

/// A pool as its starts share it: its identity, its bound and its recipes.
#[derive(Debug)]
pub(in crate::process) struct PoolState {
    pub(super) id: u64,
    pub(super) memory_bytes: u64,
    is_closed: AtomicBool,
    recipes: Mutex<VecDeque<Arc<Recipe>>>,
}

/// The state of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateStats {
    pub state: &'static str,
    /// 0 where there is no process.
    pub pid: i32,
    pub spares: usize,
    pub forks: u64,
    pub memory_bytes: u64,
    /// How often in a row it has failed.
    pub failures: u32,
    /// Why it failed the last time.
    pub reason: String,
}

/// How templates are made; many programs may share it.
#[derive(Debug)]
pub(super) struct Recipe {
    id: u64,
    pub(super) arg: CString,
    pub(super) program: Vec<u8>,
    pub(super) settings: Vec<u8>,
    /// The verified files that a template may read before it is ready.
    pub(super) sealed: Option<Arc<Witness>>,
}

/// A recipe as it is applied to one program.
#[derive(Debug, Clone)]
pub(super) struct AppliedRecipe {
    pub(super) recipe: Arc<Recipe>,
    pub(super) arg_index: usize,
}

/// A warm start of one program: its pool and its recipe.
#[derive(Debug, Clone)]
pub struct Warm {
    pub(super) pool: Arc<PoolState>,
    pub(super) applied: AppliedRecipe,
    /// Identifies the start within the pool.
    pub(super) start: u64,
}

/// How the template of a program is to be made.
#[derive(Debug)]
pub struct TemplateSpec<'content> {
    /// Which of the program's arguments is `arg` in the template.
    pub arg_index: usize,
    pub arg: CString,
    /// What the template is sent.
    pub program: &'content [u8],
    pub settings: &'content [u8],
    /// It serves no call unless this holds once it is ready.
    pub sealed: Option<Arc<Witness>>,
}

impl PartialEq for AppliedRecipe {
    fn eq(&self, other: &Self) -> bool {
        (self.recipe.id, self.arg_index) == (other.recipe.id, other.arg_index)
    }
}

/// One start of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::process) struct Key {
    pub(super) pool: u64,
    pub(super) start: u64,
}

/// The program and recipe of the templates of one start.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) program: Program,
    pub(super) applied: AppliedRecipe,
}

impl Origin {
    /// Whether a start of this program is the same one; equal keys don't prove it.
    pub(super) fn is_of(&self, program: &Program, warm: &Warm) -> bool {
        self.applied == warm.applied && self.program == *program
    }
}

impl Key {
    pub(super) fn of(warm: &Warm) -> Self {
        Self {
            pool: warm.pool.id,
            start: warm.start,
        }
    }
}

/// Identifies a pool or a recipe.
fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl PoolState {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            id: next_id(),
            memory_bytes,
            is_closed: AtomicBool::new(false),
            recipes: Mutex::default(),
        }
    }

    /// Whether everything starts cold.
    pub(super) fn is_closed(&self) -> bool {
        self.memory_bytes == 0 || self.is_closed.load(Ordering::Relaxed)
    }

    /// Has everything start cold from here on; whether it was open.
    pub(super) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::Relaxed)
    }

    /// Returns the recipe of this content, the same one for equal content.
    fn recipe(&self, spec: TemplateSpec<'_>) -> Arc<Recipe> {
        let mut known = lock(&self.recipes);
        let same = |recipe: &&Arc<Recipe>| {
            recipe.arg == spec.arg
                && recipe.program == spec.program
                && recipe.settings == spec.settings
                && are_alike(recipe.sealed.as_ref(), spec.sealed.as_ref())
        };
        if let Some(recipe) = known.iter().find(same) {
            return Arc::clone(recipe);
        }
        let recipe = Arc::new(Recipe {
            id: next_id(),
            arg: spec.arg,
            program: spec.program.to_vec(),
            settings: spec.settings.to_vec(),
            sealed: spec.sealed,
        });
        known.truncate(MOST_RECIPES - 1);
        known.push_front(Arc::clone(&recipe));
        recipe
    }
}

fn are_alike(one: Option<&Arc<Witness>>, other: Option<&Arc<Witness>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.saw_the_same(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl Warm {
    pub(super) fn new(
        pool: &Arc<PoolState>,
        target: &Program,
        spec: TemplateSpec<'_>,
    ) -> Result<Self> {
        let arg_index = spec.arg_index;
        // The command precedes the arguments.
        if arg_index >= target.argv.len() - 1 {
            let message = format!("there is no argument {arg_index} to be warm with");
            return Err(Error::Invalid(message));
        }
        let recipe = pool.recipe(spec);
        // Keyed with a secret of this process, so that a collision can't be constructed.
        static SECRET: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = SECRET.get_or_init(RandomState::new).build_hasher();
        (recipe.id, arg_index).hash(&mut hasher);
        (&target.path, &target.argv, &target.env, &target.cwd).hash(&mut hasher);
        Ok(Self {
            pool: Arc::clone(pool),
            applied: AppliedRecipe { recipe, arg_index },
            start: hasher.finish(),
        })
    }
}
